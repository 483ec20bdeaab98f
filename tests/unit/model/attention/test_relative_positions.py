"""Positions inside the attention by hand; slopes and buckets: tests/parity/test_huggingface.py."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.model.encoder import Memory

INSIDE = ["rotary", "alibi", "relative"]
CPU = torch.device("cpu")


@pytest.mark.parametrize("positions", INSIDE)
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_moving_a_whole_sentence_changes_nothing(positions: str, stack: str) -> None:
    model = tiny_transformer(positions=positions)
    stacked = getattr(model, stack)
    attention = getattr(stacked.layers[0], "attention" if stack == "encoder" else "self_attention")
    hidden = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(1))

    def attended(first: int, order: list[int]) -> Tensor:
        at = torch.arange(first, first + 6)
        at_home = stacked.attention_context(6, 0, None, CPU)
        rotary = stacked.attention_context.rotary
        rotation = None if rotary is None else rotary(at)
        context = replace(at_home, queries=at, keys=at, rotation=rotation, dense=None)
        ordered = hidden[:, order]
        return attention.attend(ordered, ordered, ordered, context)

    straight = [0, 1, 2, 3, 4, 5]
    assert_close(attended(30, straight), attended(0, straight))
    # Order counts: without positions the last query would see the same keys.
    swapped = attended(0, [0, 1, 2, 4, 3, 5])
    assert not torch.allclose(swapped[:, 5], attended(0, straight)[:, 5], atol=1e-4)


@pytest.mark.parametrize("positions", INSIDE)
def test_cross_attention_knows_no_distance(positions: str) -> None:
    model = tiny_transformer(positions=positions)
    target = torch.tensor([[2, 4, 6, 8]])
    with torch.no_grad():
        memory = model.encode(torch.tensor([[7, 8, 9, 10, 3]]))
        mixed = Memory(memory.hidden[:, [3, 0, 4, 2, 1]], memory.mask)
        assert_close(
            model.decode(target, model.start(mixed)), model.decode(target, model.start(memory))
        )
