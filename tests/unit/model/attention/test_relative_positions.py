"""Positions inside the attention against numbers worked out by hand from the papers."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.model.attention.attention_bias import SelfAttentionBias
from transformer.model.attention.multi_head import eager
from transformer.model.attention.relative_positions import (
    AlibiBias,
    BucketBias,
    RotaryPositions,
    alibi_slope,
)
from transformer.model.encoder import Memory

INSIDE = ["rotary", "alibi", "relative"]
CPU = torch.device("cpu")


def turned(heads: Tensor, *positions: int) -> Tensor:
    return RotaryPositions(heads.size(-1))(torch.tensor(positions))(heads)


def random_heads(length: int, head_dim: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 3, length, head_dim, generator=generator)


def test_a_rotation_by_hand() -> None:
    # Width 4: component 1 pairs with 3 and turns by 1 a position, 2 with 4 by 10,000 ** -0.5.
    heads = torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(1, 1, 3, 4)
    expected = torch.tensor(
        [
            [1.0, 2.0, 3.0, 4.0],
            [-1.984111, 1.959901, 2.462378, 4.019800],
            # cos 2 = -0.416147, sin 2 = 0.909297; cos 0.02 = 0.999800, sin 0.02 = 0.019999.
            [-3.144039, 1.919605, -0.339143, 4.039197],
        ]
    )
    torch.testing.assert_close(turned(heads, 0, 1, 2)[0, 0], expected, rtol=0, atol=2e-6)
    for dtype in (torch.bfloat16, torch.float64):
        assert turned(heads.to(dtype), 4, 5, 6).dtype == dtype


@pytest.mark.parametrize(("query_at", "key_at"), [(0, 0), (3, 1), (1, 3), (20, 0)])
def test_a_rotated_score_depends_on_the_distance_alone(query_at: int, key_at: int) -> None:
    pair = torch.nn.functional.normalize(random_heads(2), dim=-1)

    def scores(shift: int) -> Tensor:
        query, key = turned(pair, query_at + shift, key_at + shift).unbind(dim=2)
        return (query * key).sum(-1)

    for shift in (1, 7, 50):
        assert_close(scores(shift), scores(0))
    farther = turned(pair, query_at + 1, key_at).unbind(dim=2)
    assert not torch.allclose((farther[0] * farther[1]).sum(-1), scores(0), atol=1e-2)


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        # Press et al. 2022, section 3: "for 8 heads ... 1/2, 1/4, ..., 1/256".
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (16, [0.5 * i for i in range(1, 17)]),
        (1, [8]),
        (2, [4, 8]),
        # No power of two: those of the power below, then every other one of the power above.
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes_of_alibi(heads: int, exponents: list[float]) -> None:
    slopes = alibi_slope(torch.arange(heads), heads).tolist()
    assert slopes == pytest.approx([2**-exponent for exponent in exponents])
    assert len(set(slopes)) == heads


def dense(bias: AlibiBias | BucketBias, length: int, *, causal: bool, start: int = 0) -> Tensor:
    matrix = SelfAttentionBias(causal=causal, bias=bias)(length, start, None, CPU).dense_bias
    assert matrix is not None
    return matrix[0]


def test_alibi_is_the_slope_times_the_distance() -> None:
    matrices = dense(AlibiBias(8), 4, causal=False)
    distances = torch.tensor([[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]])
    for head in range(8):
        assert torch.equal(matrices[head], -distances / 2 ** (head + 1))
    # With a cache: one query at position 3, over keys 0 to 3; heads of slope 1/16 and 1/256.
    matrices = dense(AlibiBias(2), 1, causal=True, start=3)
    expected = torch.tensor([[-3.0, -2.0, -1.0, 0.0]])
    assert torch.equal(matrices, torch.stack((expected / 16, expected / 256)))
    heads = torch.zeros(1, 1, 3, 3)
    attention_bias = SelfAttentionBias(causal=True, bias=AlibiBias(1))(3, 0, None, CPU)
    # The values are one-hot, so that the result is the weights: slope 1/256.
    weights = eager(heads, heads, torch.eye(3)[None, None], attention_bias, 0.0)[0, 0]
    powers = torch.tensor([math.exp(-2 / 256), math.exp(-1 / 256), 1.0])
    assert_close(weights[2], powers / powers.sum())
    assert weights[0].tolist() == [1.0, 0.0, 0.0]


def buckets(bias: BucketBias, distances: list[int]) -> list[int]:
    return bias.bucket(torch.tensor(distances)).tolist()


def from_starts(starts: list[int], length: int) -> list[int]:
    """The bucket of each distance, where ``starts`` lists the first distance of each bucket."""
    return [sum(start <= distance for start in starts) - 1 for distance in range(length)]


@pytest.mark.parametrize(
    ("count", "most", "starts"),
    [
        # Exact up to 7, then from 8 * 16 ** (k / 8): 8, 11.3, 16, 22.6, 32, 45.3, 64, 90.5.
        (32, 128, [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]),
        # Exact up to 1, then from 2 * 8 ** (k / 2): 2, 5.7.
        (8, 16, [0, 1, 2, 6]),
        (4, 10, [0, 1]),
    ],
)
def test_buckets_that_look_both_ways(count: int, most: int, starts: list[int]) -> None:
    bias = BucketBias(2, buckets=count, max_distance=most, causal=False)
    before = from_starts(starts, 300)
    assert buckets(bias, [-step for step in range(300)]) == before
    # The upper half of the table is for keys that follow; the query itself is in the lower.
    after = [bucket + count // 2 for bucket in before[1:]]
    assert buckets(bias, list(range(1, 300))) == after
    assert buckets(bias, [-(10**9), 10**9]) == [count // 2 - 1, count - 1]


@pytest.mark.parametrize(
    ("count", "most", "starts"),
    [
        # Exact up to 15, then from 16 * 8 ** (k / 16), rounded up.
        (
            *(32, 128),
            [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113],
        ),
        # Exact up to 3, then from 4 * 4 ** (k / 4): 4, 5.7, 8, 11.3.
        (8, 16, [0, 1, 2, 3, 4, 6, 8, 12]),
        (4, 10, [0, 1, 2, 5]),
    ],
)
def test_buckets_that_look_back(count: int, most: int, starts: list[int]) -> None:
    bias = BucketBias(2, buckets=count, max_distance=most, causal=True)
    assert buckets(bias, [-step for step in range(300)]) == from_starts(starts, 300)
    # What follows is never seen, and reads no row of its own.
    assert buckets(bias, [1, 5, 1000, -(10**9)]) == [0, 0, 0, count - 1]


def test_a_bucket_adds_its_row_of_the_table() -> None:
    bias = BucketBias(2, buckets=8, max_distance=16, causal=False)
    bias.table.data = torch.arange(16.0).view(8, 2)
    # Distances 0, 1, 2 forth are buckets 0, 5, 6, and back 0, 1, 2; head 1 is one more than head 0.
    head = torch.tensor([[0.0, 10.0, 12.0], [2.0, 0.0, 10.0], [4.0, 2.0, 0.0]])
    assert torch.equal(dense(bias, 3, causal=False), torch.stack((head, head + 1)))
    # The rows that are read learn.
    model = tiny_transformer(positions="relative")
    tokens = torch.tensor([[5, 6, 7, 8]])
    model.logits(model(tokens, tokens)).logsumexp(-1).sum().backward()
    read = {"encoder": [0, 1, 2, 5, 6], "decoder": [0, 1, 2, 3]}
    for name, rows in read.items():
        gradient = getattr(model, name).attention_bias.bias.table.grad
        assert torch.isfinite(gradient).all()
        # Every head of its own.
        assert gradient.ne(0).any(1).nonzero().flatten().tolist() == rows
        assert gradient[rows].ne(0).all()


@pytest.mark.parametrize("positions", INSIDE)
def test_only_relative_positions_have_a_table_for_a_stack(positions: str) -> None:
    model = tiny_transformer(positions=positions)
    tables = [f"{stack}.attention_bias.bias.table" for stack in ("encoder", "decoder")]
    expected = tables if positions == "relative" else []
    assert [name for name, _ in model.named_parameters() if "attention_bias" in name] == expected
    assert [name for name in model.state_dict() if "attention_bias" in name] == expected


@pytest.mark.parametrize("positions", INSIDE)
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_moving_a_whole_sentence_changes_nothing(positions: str, stack: str) -> None:
    model = tiny_transformer(positions=positions)
    stacked = getattr(model, stack)
    attention = getattr(stacked.layers[0], "attention" if stack == "encoder" else "self_attention")
    hidden = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(1))

    def attended(first: int, order: list[int]) -> Tensor:
        at = torch.arange(first, first + 6)
        at_home = stacked.attention_bias(6, 0, None, CPU)
        rotary = stacked.attention_bias.rotary
        rotation = None if rotary is None else rotary(at)
        attention_bias = replace(at_home, queries=at, keys=at, rotation=rotation)
        return attention.attend_self(hidden[:, order], attention_bias)

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
