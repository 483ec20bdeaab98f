"""A stack alone sees what it shall see, and is built of any of the blocks."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_config
from tests.helpers.model.tolerance import assert_close
from transformer.common.errors import InputError
from transformer.model.decoder import Decoder
from transformer.model.single_stack import SingleStack, build_single_stack

ALONE: dict[str, Any] = {"decoder_layers": 0}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm_order": "post", "positions": "rotary"},
    {"norm_order": "sandwich", "positions": "alibi"},
    {"positions": "relative"},
    {"pattern": "sliding", "attention": "eager"},
    {"convolution_window": 3},
]


def stack(causal: bool, **changes: Any) -> SingleStack:
    torch.manual_seed(1)
    return build_single_stack(tiny_config(**ALONE, **changes), causal=causal).eval()


def first_states(model: SingleStack, tokens: list[int], count: int) -> Tensor:
    with torch.no_grad():
        return model(torch.tensor([tokens]))[0, :count]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_only_a_causal_stack_does_not_see_what_follows(options: dict[str, Any]) -> None:
    model = stack(True, **options)
    before = first_states(model, [5, 6, 7, 8, 9], 3)
    assert_close(first_states(model, [5, 6, 7, 10, 11], 3), before)
    assert_close(first_states(model, [5, 6, 7], 3), before)
    assert not torch.allclose(first_states(model, [11, 6, 7], 3)[2], before[2], atol=1e-3)
    other = stack(False, **options)
    before = first_states(other, [5, 6, 7, 8], 3)
    assert not torch.allclose(first_states(other, [5, 6, 7, 10], 3)[2], before[2], atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("convolution_window", [None, 3])
def test_padding_is_not_seen(causal: bool, convolution_window: int | None) -> None:
    model = stack(causal, convolution_window=convolution_window)
    padded = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 10, 11, 12]])
    with torch.no_grad():
        assert_close(model(padded)[0, :3], model(torch.tensor([[5, 6, 7]]))[0])


def test_outputs_differ_from_inputs_only_untied() -> None:
    model = stack(False, target_vocab_size=5, tie_embeddings="none")
    assert model.logits(model(torch.tensor([[5, 6]]))).shape == (1, 2, 5)
    assert not any(isinstance(module, Decoder) for module in model.modules())
    config = tiny_config(**ALONE, target_vocab_size=5, tie_embeddings="decoder")
    with pytest.raises(
        InputError, match=r"=decoder needs outputs .* set model\.tie_embeddings=none"
    ):
        build_single_stack(config, causal=True)
