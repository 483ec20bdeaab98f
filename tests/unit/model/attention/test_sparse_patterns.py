"""Each pattern against its description in words, and the blocks that a kernel computes for it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_config
from transformer.model.attention.attention_context import AttentionContext, StackContext
from transformer.model.attention.kernels.block_sparse import Group, visible_blocks
from transformer.model.attention.sparse_patterns import (
    BigBird,
    Longformer,
    Pattern,
    Sliding,
    _hash,
    build_pattern,
)

LENGTH = 60
PATTERNS: dict[str, Pattern] = {
    "sliding": Sliding(3),
    "longformer": Longformer(2, 4),
    "bigbird": BigBird(2, 1, 2, 5, 7),
}


def seen(pattern: Pattern) -> Tensor:
    positions = torch.arange(LENGTH)
    return pattern(positions[:, None], positions[None, :])


def by_hand(sees: Callable[[int, int], bool]) -> Tensor:
    return torch.tensor([[sees(q, k) for k in range(LENGTH)] for q in range(LENGTH)])


def near(query: int, key: int, window: int) -> bool:
    return key in range(query - window, query + window + 1)


@pytest.mark.parametrize(("window", "first"), [(1, 1), (3, 4), (100, 1), (3, 100)])
def test_patterns_are_bands_and_global_tokens(window: int, first: int) -> None:
    band = by_hand(lambda q, k: near(q, k, window))
    assert torch.equal(seen(Sliding(window)), band)
    longformer = by_hand(lambda q, k: near(q, k, window) or q in range(first) or k in range(first))
    assert torch.equal(seen(Longformer(window, first)), longformer)


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_bigbird_adds_links_between_whole_blocks(draws: int) -> None:
    block, blocks = 5, LENGTH // 5
    bigbird = seen(BigBird(2, 1, draws, block, 7))
    longformer = seen(Longformer(2, 1))
    assert (bigbird | ~longformer).all()
    # query key -> blocks block blocks block
    tiles = (bigbird & ~longformer).view(blocks, block, blocks, block).any(3).any(1)
    whole = bigbird.view(blocks, block, blocks, block).all(3).all(1)
    assert torch.equal(tiles & ~whole, torch.zeros_like(tiles))
    # Each block drew some among itself and those before it, perhaps one of them twice.
    drawn = whole.tril().sum(1)
    assert (drawn >= 1).all() and (drawn <= draws).all()


def test_links_stay_what_trained_models_have() -> None:
    expected = {
        7: [[863798484, 309975530], [416989353, 1420732554]],
        -1: [[447389312, 820811469], [968343615, 998324100]],
        10**30: [[994603138, 1464184734], [1059911308, 1841149192]],
    }
    for seed, links in expected.items():
        bigbird = build_pattern(tiny_config(pattern_seed=seed), "bigbird")
        assert isinstance(bigbird, BigBird)
        assert [_hash(torch.tensor([5, 123]), bigbird.seed, d).tolist() for d in (0, 2)] == links


def test_every_earlier_block_is_as_likely_as_any_other() -> None:
    # Block 9 draws one of ten, 2,000 times.
    queries, keys = torch.tensor([[9]]), torch.arange(10)[None]
    counts = torch.zeros(10)
    for seed in range(2000):
        # Blocks of one position; without window and global tokens only the draw is left.
        counts += BigBird(-1, 0, 1, 1, seed)(queries, keys)[0]
    assert counts.sum() == 2000
    chi_square = ((counts - 200) ** 2 / 200).sum().item()
    # 9 degrees of freedom: more than 33.7 once in 10,000.
    assert chi_square < 33.7


@pytest.mark.parametrize("name", PATTERNS)
def test_a_decoder_sees_the_same_and_nothing_later(name: str) -> None:
    matrix = seen(PATTERNS[name])
    assert torch.equal(matrix, matrix.T) and matrix.diagonal().all() and not matrix.all()
    stack = StackContext(causal=True, pattern=PATTERNS[name])
    mask = stack(LENGTH, 0, None, torch.device("cpu")).dense_mask()
    assert mask is not None and torch.equal(mask[0, 0], matrix.tril())
    # Once more with a cache: the last rows of the same matrix.
    step = stack(2, LENGTH - 2, None, torch.device("cpu")).dense_mask()
    assert step is not None and torch.equal(step, mask[:, :, -2:])


def pairs(groups: list[Group]) -> set[tuple[int, int]]:
    """Which block of queries reads which block of keys, each pair once."""
    found = [
        (query, key)
        for group in groups
        for query, keys in zip(group.queries.tolist(), group.keys.tolist(), strict=True)
        for key in keys
    ]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", [*PATTERNS, "full"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_blocks_are_read_if_a_key_in_them_is_seen(count: int, name: str, causal: bool) -> None:
    pattern, block = PATTERNS.get(name), 8
    at = torch.arange(count * block)
    mask = AttentionContext(causal=causal, pattern=pattern).sees(at[:, None], at[None, :])
    expected = {(q // block, k // block) for q, k in mask.nonzero().tolist()}
    assert pairs(visible_blocks(causal, pattern, count, block)) == expected
