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


def test_positions_that_are_learned_or_stored() -> None:
    for kind, tables in (("sinusoidal", 0), ("learned", 2)):
        names = tiny_transformer(positions=kind).state_dict()
        assert sum("pos" in name for name in names) == tables
    positions = LearnedPositions(4, max_length=6)
    torch.nn.init.normal_(positions.table)
    assert torch.equal(positions(2, start=4), positions.table[4:6])
    assert torch.equal(positions(6), positions.table)
    for length, start in ((7, 0), (1, 6), (3, 4)):
        with pytest.raises(InputError, match=r"a sentence of 7 tokens .* model\.max_length=6; sho"):
            positions(length, start)
