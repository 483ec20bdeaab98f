"""Decoding step by step and decoding all at once give the same numbers, in any batch."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.decoding.search.model_step import encode
from transformer.model import decoder
from transformer.model.attention.kv_cache import BLOCK

# Tests of searches check the shapes.
pytestmark = pytest.mark.usefixtures("unchecked")

POSITIONS = ["sinusoidal", "learned", "rotary", "alibi", "relative"]
PATTERNS = ["full", "sliding", "longformer", "bigbird"]
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 3], [10, 11, 3, 0, 0, 0], [12, 13, 14, 15, 3, 0]])
STEPS = 9


def every_two(*others: Any) -> list[tuple[Any, str, str]]:
    """One of two values, a kind of positions and a pattern: each meets each of the other kinds."""
    pairs = product(enumerate(POSITIONS), enumerate(PATTERNS))
    return [(others[(i + j) % 2], position, pattern) for (i, position), (j, pattern) in pairs]


def targets(rows: int) -> Tensor:
    return torch.randint(4, 24, (rows, STEPS), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"positions": positions, "decoder_pattern": pattern, "num_kv_heads": num_kv_heads}
            for num_kv_heads, positions, pattern in every_two(None, 2)
        ),
        {"attention": "flex", "pattern": "bigbird", "positions": "relative", "num_kv_heads": 2},
        {"attention": "eager", "pattern": "sliding", "positions": "alibi"},
        {"query_key_norm": True, "head_dim": 6, "positions": "rotary"},
        {"norm": "rms", "norm_order": "sandwich", "activation": "swiglu"},
        {"norm_order": "sandwich"},
        {"norm_order": "post"},
        {"norm_order": "post", "positions": "relative"},
        {"share_layers": "all", "positions": "rotary"},
        {"share_layers": "attention", "num_kv_heads": 1},
        {"layer_drop": 0.5},
        {"decoder_layer": "ssru"},
        {"decoder_layer": "ssru", "norm_order": "post", "share_layers": "all"},
    ],
    ids=str,
)
def test_steps_equal_the_whole(changes: dict[str, Any]) -> None:
    model = tiny_transformer(**changes)
    for beam, sizes in ((1, [4, 1, 3, 1]), (3, [1] * STEPS)):
        target = targets(3 * beam)
        full = model(SOURCE.repeat_interleave(beam, 0), target)
        # So many new positions a call.
        cache = model.start(model.encode(SOURCE))
        steps = [model.decode(part, cache) for part in target.split(sizes, dim=1)]
        assert_close(torch.cat(steps, dim=1), full)


@pytest.mark.parametrize(("num_kv_heads", "positions", "pattern"), every_two(None, 1))
def test_the_cache_follows_reorder_and_keep(
    num_kv_heads: int | None, positions: str, pattern: str
) -> None:
    model = tiny_transformer(positions=positions, pattern=pattern, num_kv_heads=num_kv_heads)
    target = targets(6)
    cache = model.start(model.encode(SOURCE))
    model.decode(target[:, :5], cache)
    # Both beams of the first sentence go on from its second one; then that sentence leaves.
    cache.reorder(torch.tensor([1, 1, 3, 2, 5, 5]))
    model.decode(target[:, 5:7], cache)
    cache.keep(torch.tensor([1, 2]), beam=2)
    actual = model.decode(target[2:, 7:], cache)
    whole = torch.cat((target[torch.tensor([3, 2, 5, 5]), :5], target[2:, 5:]), dim=1)
    full = model(SOURCE[1:].repeat_interleave(2, 0), whole)
    assert_close(actual, full[:, 7:])


@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_long_targets_outgrow_the_room_of_the_cache(positions: str) -> None:
    model = tiny_transformer(positions=positions)
    target = torch.randint(4, 24, (3, 2 * BLOCK + 3), generator=torch.Generator().manual_seed(1))
    expected = model(SOURCE, target)
    cache = model.start(encode(model, SOURCE))
    cache.gather_source()
    rows = torch.arange(3)
    found = []
    for step, tokens in enumerate(target.split(1, dim=1)):
        found.append(model.decode(tokens[rows], cache)[rows.argsort()])
        # Sentences change places, and change back.
        if step % 5 == 4:
            order = torch.tensor([2, 0, 1])
            cache.keep(order, beam=1)
            rows = rows[order]
    assert_close(torch.cat(found, dim=1), expected)
    assert [layer.keys.size(2) for layer in cache.layers if layer.keys is not None] == [
        3 * BLOCK
    ] * 2


def test_a_fused_projection_of_the_memory_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients: list[dict[str, Tensor | None]] = []
    for fused in (False, True):
        monkeypatch.setattr(decoder, "fusing_pays", lambda *_, pays=fused: pays)
        model = tiny_transformer(query_key_norm=True, num_kv_heads=2, head_dim=6).train()
        model(SOURCE, targets(len(SOURCE))).square().sum().backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert_close(gradients[1][name], gradient)
