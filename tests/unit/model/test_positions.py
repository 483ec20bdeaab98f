"""Rotary, ALiBi and T5 positions against their formulas, computed by hand."""

import math

import pytest
import torch

from transformer.model.positions.alibi import AlibiBias, alibi_slope
from transformer.model.positions.rotary import RotaryPositions
from transformer.model.positions.t5_buckets import BucketBias


def test_rotary_turns_each_pair_by_its_angle() -> None:
    rotation = RotaryPositions(4)(torch.arange(3))
    head = torch.tensor([[[[1.0, 0.0, 0.0, 2.0]] * 3]])
    rotated = rotation(head)[0, 0]
    for position in range(3):
        # Pairs (0, 2) and (1, 3); frequencies 10000 ** 0 and 10000 ** -(2 / 4).
        slow = position / 100
        by_hand = [
            math.cos(position),
            -2 * math.sin(slow),
            math.sin(position),
            2 * math.cos(slow),
        ]
        torch.testing.assert_close(rotated[position], torch.tensor(by_hand))


def test_a_rotary_score_depends_on_the_distance_alone() -> None:
    rotary = RotaryPositions(8)
    query, key = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(1))

    def score(query_position: int, key_position: int) -> float:
        turned = rotary(torch.tensor([query_position]))(query)
        other = rotary(torch.tensor([key_position]))(key)
        return float((turned * other).sum())

    assert score(7, 2) == pytest.approx(score(105, 100), abs=1e-4)
    assert score(7, 2) != pytest.approx(score(2, 7), abs=1e-2)


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        # Six heads: the four slopes of four heads, then the first and third of eight heads.
        (6, [2, 4, 6, 8, 1, 3]),
        (1, [8]),
    ],
)
def test_alibi_slopes(heads: int, exponents: list[int]) -> None:
    slopes = alibi_slope(torch.arange(heads), heads)
    torch.testing.assert_close(slopes, torch.tensor([2.0**-exponent for exponent in exponents]))


def test_alibi_penalizes_both_directions_alike() -> None:
    bias = AlibiBias(8)(torch.tensor(1), torch.tensor([-3, 0, 3]))
    torch.testing.assert_close(bias, torch.tensor([-0.75, 0.0, -0.75]))


def test_t5_buckets() -> None:
    distances = torch.tensor([-200, -16, -8, -7, -1, 0, 1, 7, 8, 127, 200])
    encoder = BucketBias(1, buckets=32, max_distance=128, causal=False)
    # Half of the 16 buckets of a direction are exact; 8 * 16 ** (n / 8) begins the later ones.
    assert encoder.bucket(distances).tolist() == [15, 10, 8, 7, 1, 0, 17, 23, 24, 31, 31]
    decoder = BucketBias(1, buckets=32, max_distance=128, causal=True)
    # Later keys have no bucket: they share that of distance 0. Twice as many are exact.
    assert decoder.bucket(distances).tolist() == [31, 16, 8, 7, 1, 0, 0, 0, 0, 0, 0]
