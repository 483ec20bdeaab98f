"""Positions inside the attention by hand; slopes and buckets: tests/parity/test_huggingface.py."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.model.attention.attention_context import StackContext
from transformer.model.attention.scaled_dot_product import eager
from transformer.model.encoder import Memory
from transformer.model.positions.alibi import AlibiBias
from transformer.model.positions.rotary import RotaryPositions
from transformer.model.positions.t5_buckets import BucketBias

INSIDE = ["rotary", "alibi", "relative"]
CPU = torch.device("cpu")


def turned(heads: Tensor, *positions: int) -> Tensor:
    return RotaryPositions(heads.size(-1))(torch.tensor(positions))(heads)


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


def dense(bias: AlibiBias | BucketBias, length: int, *, causal: bool, start: int = 0) -> Tensor:
    matrix = StackContext(causal=causal, bias=bias)(length, start, None, CPU).dense_bias()
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
    context = StackContext(causal=True, bias=AlibiBias(1))(3, 0, None, CPU)
    # The values are one-hot, so that the result is the weights: slope 1/256.
    weights = eager(heads, heads, torch.eye(3)[None, None], context, 0.0)[0, 0]
    powers = torch.tensor([math.exp(-2 / 256), math.exp(-1 / 256), 1.0])
    assert_close(weights[2], powers / powers.sum())
    assert weights[0].tolist() == [1.0, 0.0, 0.0]


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
        gradient = getattr(model, name).attention_context.bias.table.grad
        assert torch.isfinite(gradient).all()
        # Every head of its own.
        assert gradient.ne(0).any(1).nonzero().flatten().tolist() == rows
        assert gradient[rows].ne(0).all()


@pytest.mark.parametrize("positions", INSIDE)
def test_only_relative_positions_have_a_table_for_a_stack(positions: str) -> None:
    model = tiny_transformer(positions=positions)
    tables = [f"{stack}.attention_context.bias.table" for stack in ("encoder", "decoder")]
    expected = tables if positions == "relative" else []
    assert [name for name, _ in model.named_parameters() if "attention_context" in name] == expected
    assert [name for name in model.state_dict() if "attention_context" in name] == expected


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
