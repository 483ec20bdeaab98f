"""Any corpus, any budget: every pair once an epoch, within the budget, and a jump is a walk."""

from itertools import chain, islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset

from transformer.common.errors import InputError
from transformer.data.batching.batch import PaddedBatch
from transformer.data.batching.batch_sequence import (
    BatchKey,
    BatchPlan,
    MixedBatches,
    PlannedBatches,
    RankAssignment,
)
from transformer.data.batching.loader import UpdateLoader

LONGEST = 24


@st.composite
def plans(draw: st.DrawFn) -> BatchPlan:
    """A plan of batches over a corpus drawn at random."""
    seed, count = draw(st.integers(0, 1000)), draw(st.integers(1, 400))
    random = np.random.default_rng(seed)
    lengths = random.integers(1, draw(st.integers(2, LONGEST)), (2, count))
    budget = draw(st.integers(LONGEST, 40 * LONGEST))
    return BatchPlan(*lengths, batch_tokens=budget, seed=seed, shuffle=draw(st.booleans()))


class Pairs(Dataset[PaddedBatch]):
    """The numbers of the pairs, in place of their subwords."""

    def __getitem__(self, key: BatchKey) -> PaddedBatch:
        return PaddedBatch(torch.from_numpy(key.pairs.astype(np.int64))[:, None])


@settings(deadline=None)
@given(plans(), st.integers(1, 9), st.integers(1, 4), st.integers(0, 2))
def test_any_number_of_ranks_trains_on_each_pair_once_an_epoch(
    plan: BatchPlan, ranks: int, accumulation: int, epoch: int
) -> None:
    row, length, shares = PlannedBatches(plan), len(plan), RankAssignment(ranks, accumulation)
    updates = -(-(epoch + 1) * length // shares.batches)
    dealt: dict[int, list[int]] = {}
    for rank in range(ranks):
        corpus: Any = {"assignment": shares, "rank": rank, "done": lambda: 0}
        loader = UpdateLoader(Pairs(), row, **corpus, workers=0, pin_memory=False)
        for update in islice(loader, updates):
            for number, pairs in zip(update.numbers, update.batches, strict=True):
                assert number not in dealt
                dealt[number] = pairs.source.flatten().tolist()
    numbers = range(epoch * length, (epoch + 1) * length)
    of_the_epoch = [dealt[number] for number in numbers]
    assert sorted(chain(*of_the_epoch)) == list(range(plan.identity()["pairs"]))
    assert {row[number].epoch for number in (numbers[0], numbers[-1])} == {epoch}
    assert length == len(plan.epoch(epoch))


@settings(deadline=None)
@given(plans(), st.lists(st.integers(0, 500), min_size=1, max_size=8))
def test_a_batch_is_the_same_after_a_jump_and_after_a_walk(
    plan: BatchPlan, numbers: list[int]
) -> None:
    jumping = {number: PlannedBatches(plan)[number] for number in numbers}
    walking = PlannedBatches(plan)
    for number in range(max(numbers) + 1):
        key = walking[number]
        if number in jumping:
            assert jumping[number].epoch == key.epoch
            assert jumping[number].pairs.tolist() == key.pairs.tolist()


@settings(deadline=None, max_examples=8)
@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=5),
    st.lists(st.integers(1, 60), min_size=5, max_size=5),
    st.integers(0, 100),
    st.integers(0, 5000),
)
def test_a_mixture_keeps_shares_and_epochs(
    shares: list[float], sizes: list[int], seed: int, start: int
) -> None:
    rows = [
        PlannedBatches(
            BatchPlan(np.full(size, 5), np.full(size, 5), batch_tokens=12, seed=seed), corpus
        )
        for corpus, (size, _) in enumerate(zip(sizes, shares, strict=False))
    ]
    mixture = MixedBatches(rows, shares, seed)
    keys = [mixture[number] for number in range(2000)]
    for corpus, share in enumerate(shares):
        mine = [key for key in keys if key.corpus == corpus]
        # Rounded to a thousandth.
        assert abs(len(mine) / 2000 - share / sum(shares)) < 0.001
        expected = [rows[corpus][number] for number in range(len(mine))]
        assert [(k.epoch, k.pairs.tolist()) for k in mine] == [
            (k.epoch, k.pairs.tolist()) for k in expected
        ]
    later = MixedBatches(rows, shares, seed)[start]
    assert later.pairs.tolist() == mixture[start].pairs.tolist()
    assert later.corpus == mixture[start].corpus


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        # Many corpora take nothing from the share of one.
        ([49.0, *[1.0] * 49], [500, *[11] * 10, *[10] * 39]),
        # At least a batch each, which the largest gives.
        ([9990.0, 9.0, 1.0], [998, 1, 1]),
        # Of many corpora, ten batches each.
        ([1.0] * 100, [10] * 100),
        ([1.0] * 1000, [10] * 1000),
        ([2.0] * 1000 + [1.0] * 1000, [13] * 1000 + [7] * 1000),
    ],
)
def test_shares_of_a_block_of_batches(weights: list[float], counts: list[int]) -> None:
    row = PlannedBatches(BatchPlan(np.full(3, 5), np.full(3, 5), batch_tokens=12, seed=1))
    assert MixedBatches([row] * len(weights), weights, seed=1).identity()["shares"] == counts


def lengths_like_captions(count: int) -> np.ndarray:
    """Lengths spread and correlated as those of image captions in 8,000 pieces."""
    random = np.random.default_rng(0)
    source = np.clip(random.gamma(9.5, 1.65, count), 4, 60)
    target = np.clip(source * random.normal(1.04, 0.17, count), 3, 60)
    return np.rint(np.stack([source, target])).astype(np.int64)


def test_an_epoch_fills_budgets_and_mixes_pairs_and_lengths() -> None:
    plan = BatchPlan(*lengths_like_captions(29_000), batch_tokens=4096, seed=1)
    real = int((lengths_like_captions(29_000) + 1).sum())
    for epoch in range(5):
        assert 1 - real / int(plan.positions(plan.epoch(epoch)).sum()) < 0.05
    source, target = lengths_like_captions(29_000)
    assert len(plan) * 4096 < 1.05 * (np.maximum(source, target) + 1).sum()
    source, target = lengths_like_captions(5000)
    plan = BatchPlan(source, target, batch_tokens=1024, seed=1)
    first, second = (
        {frozenset(batches[index].tolist()) for index in range(len(batches))}
        for batches in (plan.epoch(0), plan.epoch(1))
    )
    assert len(first & second) < len(first) / 20
    batches = plan.epoch(0)
    longest = np.array([source[batches[index]].max() for index in range(len(batches))])
    position = np.arange(len(longest))
    assert abs(np.corrcoef(longest, position)[0, 1]) < 0.2


def test_pairs_that_cannot_be_batched_are_refused() -> None:
    for lengths, ranks, message in (
        ([3, 30], 1, r"31 tokens, eos included, and data\.batch_tokens is 30"),
        ([3, 3, 3], 4, "3 pairs are too few for 4 ranks"),
    ):
        pairs = np.array(lengths)
        with pytest.raises(InputError, match=message):
            BatchPlan(pairs, pairs, batch_tokens=30, shuffle=False, multiple_of=ranks)


def test_the_largest_batch_is_named() -> None:
    plan = BatchPlan(*lengths_like_captions(3000), batch_tokens=1024, seed=1)
    row = PlannedBatches(plan)
    assert row.epoch_length == len(plan)
    positions = plan.positions(plan.epoch(0))
    most, key = row.largest()
    assert most == positions.max()
    assert key.pairs.tolist() == row[int(positions.argmax())].pairs.tolist()
    small = PlannedBatches(
        BatchPlan(*lengths_like_captions(3000), batch_tokens=512, seed=1), corpus=1
    )
    assert MixedBatches([small, row], [1.0, 1.0], seed=1).largest()[0] == most
    assert positions.max() > positions.mean()
