"""A head that is off leaves no trace, and goes by one name."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.common.errors import InputError
from transformer.model.head_masks import (
    HeadName,
    attention_heads,
    attentions,
    heads_off,
    parse_heads,
    switch_off,
    switched_off,
)
from transformer.model.transformer import Transformer

SOURCE = torch.tensor([[7, 8, 9, 3], [5, 3, 0, 0]])
TARGET = torch.tensor([[2, 4, 6], [2, 9, 0]])

VARIANTS: list[dict[str, Any]] = [
    {},
    {"num_kv_heads": 2, "attention": "eager"},
    {"share_layers": "all"},
]


def hidden(model: Transformer) -> Tensor:
    with torch.no_grad():
        return model(SOURCE, TARGET)


def test_every_head_has_its_name_in_the_order_of_the_layers() -> None:
    model = tiny_transformer(encoder_layers=3)
    expected = [
        f"{kind}.{layer}.{head}"
        for kind, layers in (("encoder", 3), ("decoder", 2), ("cross", 2))
        for layer in range(layers)
        for head in range(4)
    ]
    assert list(map(str, attention_heads(model))) == expected
    assert parse_heads(model, reversed(expected)) == attention_heads(model)
    assert parse_heads(model, ["cross.1.2", "cross.1.2"]) == [HeadName("cross", 1, 2)]


def test_a_shared_head_is_named_once() -> None:
    assert len(attention_heads(tiny_transformer(share_layers="feed_forward"))) == 24
    model = tiny_transformer(share_layers="attention")
    assert {name.layer for name in attention_heads(model)} == {0}
    assert len(attention_heads(model)) == 12
    for name in ("cross.1.2", "encoder.0.4", "cross.-1.0", "cross.0.0\n", ""):
        with pytest.raises(InputError, match=r"is no head .*, up to cross\.0\.3"):
            parse_heads(model, ["encoder.0.0", name])


@pytest.mark.parametrize("changes", VARIANTS)
@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_off_is_as_without_columns_of_the_output(kind: str, changes: dict[str, Any]) -> None:
    model, twin = tiny_transformer(**changes), tiny_transformer(**changes)
    names = [name for name in attention_heads(model) if name.kind == kind and name.head in (1, 2)]
    switch_off(model, names)
    for name in names:
        attention = attentions(twin)[name.kind][name.layer]
        columns = slice(name.head * attention.head_dim, (name.head + 1) * attention.head_dim)
        with torch.no_grad():
            attention.output.weight[:, columns] = 0.0
    assert_close(hidden(model), hidden(twin))
    assert (hidden(model) - hidden(tiny_transformer(**changes))).abs().max() > 1e-3


def test_switching_off_replaces_the_heads_that_were_off() -> None:
    model = tiny_transformer()
    before = hidden(model)
    switch_off(model, parse_heads(model, ["encoder.0.3", "cross.1.2"]))
    switch_off(model, parse_heads(model, ["decoder.1.0", "decoder.1.1"]))
    assert list(map(str, heads_off(model))) == ["decoder.1.0", "decoder.1.1"]
    switch_off(model, [])
    assert torch.equal(hidden(model), before)
    # Within the context, more heads are off.
    first, second = parse_heads(model, ["encoder.0.3", "encoder.0.1"])
    switch_off(model, [first])
    with pytest.raises(KeyError), switched_off(model, [second]):
        assert set(heads_off(model)) == {first, second}
        raise KeyError
    assert heads_off(model) == [first]


def test_a_mask_is_no_weight_and_has_the_dtype_of_the_weights() -> None:
    model = tiny_transformer().bfloat16()
    keys = model.state_dict().keys()
    switch_off(model, attention_heads(model))
    assert model.state_dict().keys() == keys
    assert hidden(model).dtype == torch.bfloat16
