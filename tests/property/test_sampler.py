"""Any corpus, any budget, any number of ranks: every pair once, within the budget."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from transformer.data.sampler import BatchKey, BatchPlan, BatchSampler
from transformer.errors import InputError

LONGEST = 24


@st.composite
def plans(draw: st.DrawFn) -> list[BatchPlan]:
    """One plan a rank, over a corpus drawn at random."""
    seed, count = draw(st.integers(0, 1000)), draw(st.integers(1, 400))
    ranks = draw(st.sampled_from([1, 2, 3, 8]))
    random = np.random.default_rng(seed)
    lengths = random.integers(1, draw(st.integers(2, LONGEST)), (2, count))
    budget = draw(st.integers(LONGEST, 40 * LONGEST))
    shuffle = draw(st.booleans())
    try:
        return [
            BatchPlan(
                *lengths,
                batch_tokens=budget,
                seed=seed,
                shuffle=shuffle,
                rank=rank,
                world_size=ranks,
            )
            for rank in range(ranks)
        ]
    except InputError:
        # Not enough pairs to give each rank a batch of its own.
        assume(False)
        raise


def all_batches(plans: list[BatchPlan], epoch: int) -> list[list[np.ndarray]]:
    epochs = [plan.epoch(epoch) for plan in plans]
    return [[batches[index] for batches in epochs] for index in range(len(plans[0]))]


@settings(deadline=None)
@given(plans(), st.integers(0, 5))
def test_every_pair_once_an_epoch_at_any_world_size(plans: list[BatchPlan], epoch: int) -> None:
    pairs = [pair for step in all_batches(plans, epoch) for batch in step for pair in batch]
    assert sorted(pairs) == list(range(plans[0].identity()["pairs"]))


@settings(deadline=None)
@given(plans(), st.integers(0, 5))
def test_ranks_and_epochs_have_as_many_batches(plans: list[BatchPlan], epoch: int) -> None:
    assert {len(plan) for plan in plans} == {len(plan.epoch(epoch)) for plan in plans}
    assert len({len(plan) for plan in plans}) == 1


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 300), st.integers(LONGEST, 500), st.integers(0, 3))
def test_no_batch_exceeds_the_budget(seed: int, count: int, budget: int, epoch: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, LONGEST, (2, count))
    plan = BatchPlan(*lengths, batch_tokens=budget, seed=seed)
    batches = plan.epoch(epoch)
    for index in range(len(batches)):
        pairs = batches[index]
        assert len(pairs) >= 1
        assert len(pairs) * (lengths[:, pairs].max() + 1) <= budget


@settings(deadline=None)
@given(plans(), st.integers(0, 3), st.data())
def test_starting_at_an_index_equals_skipping(
    plans: list[BatchPlan], epoch: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(plans[0])))
    sampler = BatchSampler(plans[0])
    sampler.set_epoch(epoch)
    whole = list(sampler)
    sampler.start_at(index)
    rest = list(sampler)
    assert [key.pairs.tolist() for key in rest] == [key.pairs.tolist() for key in whole[index:]]
    assert len(list(sampler)) == len(whole)  # the start holds for one iteration only


def lengths_like_captions(count: int) -> np.ndarray:
    """Lengths spread and correlated as those of image captions in 8,000 pieces."""
    random = np.random.default_rng(0)
    source = np.clip(random.gamma(9.5, 1.65, count), 4, 60)
    target = np.clip(source * random.normal(1.04, 0.17, count), 3, 60)
    return np.rint(np.stack([source, target])).astype(np.int64)


def test_padding_stays_under_five_percent() -> None:
    plan = BatchPlan(*lengths_like_captions(29_000), batch_tokens=4096, seed=1)
    assert max(plan.padding(epoch) for epoch in range(5)) < 0.05


def test_batches_fill_the_budget() -> None:
    source, target = lengths_like_captions(29_000)
    plan = BatchPlan(source, target, batch_tokens=4096, seed=1)
    assert len(plan) * 4096 < 1.05 * (np.maximum(source, target) + 1).sum()


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    lengths = lengths_like_captions(2000)

    def order(seed: int, epoch: int) -> list[int]:
        return BatchPlan(*lengths, batch_tokens=512, seed=seed).epoch(epoch).pairs.tolist()

    assert order(1, 3) == order(1, 3)
    assert order(1, 3) != order(1, 4)
    assert order(1, 3) != order(2, 3)


def test_epochs_mix_pairs_anew() -> None:
    plan = BatchPlan(*lengths_like_captions(5000), batch_tokens=1024, seed=1)
    first, second = (
        {frozenset(batches[index].tolist()) for index in range(len(batches))}
        for batches in (plan.epoch(0), plan.epoch(1))
    )
    assert len(first & second) < len(first) / 20


def test_long_and_short_batches_come_in_random_order() -> None:
    source, target = lengths_like_captions(20_000)
    batches = BatchPlan(source, target, batch_tokens=1024, seed=1).epoch(0)
    longest = np.array([source[batches[index]].max() for index in range(len(batches))])
    position = np.arange(len(longest))
    assert abs(np.corrcoef(longest, position)[0, 1]) < 0.2


def test_ranks_get_batches_of_like_size_in_one_step() -> None:
    lengths = lengths_like_captions(20_000)
    plans = [
        BatchPlan(*lengths, batch_tokens=2048, seed=1, rank=rank, world_size=4) for rank in range(4)
    ]
    steps = all_batches(plans, 0)
    tokens = np.array([[(lengths[:, batch] + 1).sum() for batch in step] for step in steps])
    spread = (tokens.max(axis=1) - tokens.min(axis=1)) / tokens.max(axis=1)
    assert np.mean(spread) < 0.02


def test_without_shuffling_every_epoch_is_the_same() -> None:
    plan = BatchPlan(*lengths_like_captions(500), batch_tokens=512, seed=1, shuffle=False)
    assert plan.epoch(0).pairs.tolist() == plan.epoch(7).pairs.tolist()


def test_a_pair_longer_than_the_budget_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"pair 1 has 31 tokens.*data\.batch_tokens=31"):
        BatchPlan(np.array([3, 30]), np.array([3, 3]), batch_tokens=30)


def test_fewer_pairs_than_ranks_is_an_input_error() -> None:
    with pytest.raises(InputError, match="cannot be shared by 4 ranks"):
        BatchPlan(np.array([3, 3, 3]), np.array([3, 3, 3]), batch_tokens=30, world_size=4)


def test_no_pairs_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no sentence pairs"):
        BatchPlan(np.zeros(0, dtype=int), np.zeros(0, dtype=int), batch_tokens=30)


def test_a_key_carries_its_epoch() -> None:
    sampler = BatchSampler(BatchPlan(np.array([3, 4]), np.array([3, 4]), batch_tokens=5))
    sampler.set_epoch(6)
    assert [(type(key), key.epoch) for key in sampler] == [(BatchKey, 6)] * 2
