"""The recurrence is the formula of the paper; a model with it has all that others have."""

import pytest
import torch

from tests.helpers.decoding.translators import PAIRS, tiny_translator
from tests.helpers.model.models import tiny_config, tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.checkpoint.checkpoint import validate_size
from transformer.common.errors import InputError
from transformer.model.layers.recurrence import SSRU


@pytest.mark.parametrize("length", [1, 5, 8])
@pytest.mark.parametrize("continues", [False, True])
def test_it_is_the_formula(length: int, continues: bool) -> None:
    torch.manual_seed(1)
    ours, x = SSRU(6), torch.randn(2, length, 6)
    state = torch.randn(2, 6) if continues else None
    found, last = ours(x, state)
    state = torch.zeros(2, 6) if state is None else state
    for position, output in zip(x.unbind(1), found.unbind(1), strict=True):
        forget = torch.sigmoid(position @ ours.forget.weight.T + ours.forget.bias)
        state = forget * state + (1 - forget) * (position @ ours.value.weight.T)
        assert_close(output, state.relu())
    assert_close(last, state)


def test_a_batch_and_a_beam_translate_as_one_sentence() -> None:
    translator = tiny_translator(decoder_layer="ssru", beam_size=4)
    texts = [source for source, _ in PAIRS]
    alone = [translator.translate([text])[0] for text in texts]
    together = translator.translate(texts)
    assert [one.text for one in together] == [one.text for one in alone]


def test_what_only_attention_has_is_refused() -> None:
    for changes in ({"positions": "relative"}, {"decoder_pattern": "sliding"}):
        with pytest.raises(InputError, match="ssru has no self-attention for"):
            tiny_transformer(decoder_layer="ssru", **changes)


def test_a_checkpoint_that_declares_more_than_it_has_is_refused() -> None:
    with pytest.raises(InputError, match="a larger model than its weights"):
        validate_size(tiny_config(decoder_layer="ssru", ffn_dim=2**20, encoder_layers=900), 10_000)
