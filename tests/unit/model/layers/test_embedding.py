"""Position vectors against the equation of the paper, and where they end."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.common.errors import InputError
from transformer.model.positions.absolute import (
    LearnedPositions,
    SinusoidalPositions,
    sinusoids,
)
from transformer.model.positions.alibi import AlibiBias
from transformer.model.positions.rotary import RotaryPositions


def paper(length: int, d_model: int) -> Tensor:
    """Section 3.5, written out one number at a time."""
    table = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            table[position, 2 * i] = math.sin(angle)
            table[position, 2 * i + 1] = math.cos(angle)
    return torch.from_numpy(table).float()


@pytest.mark.parametrize(("length", "d_model"), [(1, 2), (7, 6), (300, 16), (50, 128)])
def test_sinusoids_are_the_equation(length: int, d_model: int) -> None:
    assert_close(sinusoids(length, d_model), paper(length, d_model))


def test_sinusoids_beyond_their_table() -> None:
    for length, start in ((4, 0), (5, 0), (1, 4), (3, 6), (2, 40)):
        made = SinusoidalPositions(8, expected_length=4)(length, start)
        assert_close(made, paper(start + length, 8)[start:])
    # A moving average copies tables into one another.
    positions = SinusoidalPositions(8, expected_length=4).double()
    assert positions(20).dtype == torch.float64
    assert positions.table.shape == (4, 8)
    model = tiny_transformer(max_length=4)
    tokens = torch.full((1, 9), 5)
    with torch.inference_mode():
        model(tokens, tokens)
    model.train()
    model(tokens, tokens).square().sum().backward()
    assert model.target_embedding.tokens.lookup.weight.grad.any()  # type: ignore[union-attr]


def test_positions_that_are_learned_or_stored() -> None:
    def stored(positions: str) -> list[str]:
        return [
            name for name in tiny_transformer(positions=positions).state_dict() if "pos" in name
        ]

    assert stored("sinusoidal") == []
    assert len(stored("learned")) == 2
    positions = LearnedPositions(4, max_length=6)
    torch.nn.init.normal_(positions.table)
    assert torch.equal(positions(2, start=4), positions.table[4:6])
    assert torch.equal(positions(6), positions.table)
    for length, start in ((7, 0), (1, 6), (3, 4)):
        with pytest.raises(InputError, match=r"a sentence of 7 tokens .* model\.max_length=6; sho"):
            positions(length, start)


def test_half_precision_does_not_round_angles_and_slopes() -> None:
    at, head = torch.tensor([0, 1000, 4000]), torch.arange(3)
    rotary, alibi = RotaryPositions(8), AlibiBias(3)
    made = rotary(at).cosine, alibi(head, at)
    again = rotary.bfloat16()(at).cosine, alibi.bfloat16()(head, at)
    assert all(map(torch.equal, made, again))
