"""Few shapes hold all batches: what they waste, and what a padded batch keeps of its pairs."""

import numpy as np
import pytest
import torch

from tests.property.test_sampler import lengths_like_captions
from transformer.common.errors import InputError
from transformer.data.batching.batch import BatchShape, ShapedBatch, collate, shaped
from transformer.data.batching.batch_sequence import BatchPlan, PlannedBatches
from transformer.data.batching.batch_shapes import ShapedPlan, choose_boxes

PAIRS = collate([[5, 6], [7]], [[8], [9, 10, 11]])
"""Three and four positions, six labels."""


def padded(*shape: int) -> ShapedBatch:
    batch = shaped(PAIRS, BatchShape(*shape))
    assert isinstance(batch, ShapedBatch)
    return batch


def test_a_batch_is_padded_to_a_shape() -> None:
    batch = padded(3, 4, 5, 9)
    assert batch.shape == BatchShape(3, 4, 5, 9)
    assert batch.source.tolist() == [[5, 6, 3, 0], [7, 3, 0, 0], [3, 0, 0, 0]]
    assert batch.target_input.tolist() == [[2, 8, 0, 0, 0], [2, 9, 10, 11, 0], [2, 0, 0, 0, 0]]
    assert batch.labels.tolist() == [8, 3, 9, 10, 11, 3, 0, 0, 0]
    assert len(set(batch.labeled.tolist())) == 9
    counts = (batch.size, batch.source_tokens, batch.target_tokens, batch.tokens, batch.positions)
    assert counts == (2, 5, 6, 11, 27)


def test_halves_and_the_plain_batch_have_no_filler() -> None:
    batch = padded(4, 6, 6, 12)
    for name in ("source", "target_input", "target_output", "labeled"):
        assert torch.equal(getattr(batch.plain, name), getattr(PAIRS, name))
    for half, expected in zip(batch.halves(), PAIRS.halves(), strict=True):
        assert torch.equal(half.source, expected.source)
        assert torch.equal(half.labels, expected.labels)
    assert batch.to("meta").counts == batch.counts


@pytest.mark.parametrize("shape", [(1, 3, 4, 6), (2, 2, 4, 6), (2, 3, 3, 6), (2, 3, 4, 5), None])
def test_a_batch_that_does_not_fit_stays_as_it_is(shape: tuple[int, ...] | None) -> None:
    assert shaped(PAIRS, None if shape is None else BatchShape(*shape)) is PAIRS


def test_a_copy_reads_other_batches_of_its_shape() -> None:
    copy, other = padded(2, 3, 4, 8).clone(), shaped(PAIRS, BatchShape(2, 3, 4, 8))
    assert isinstance(other, ShapedBatch)
    other.source[0, 0] = 9
    copy.copy_(other)
    assert copy.source.tolist() == other.source.tolist()


def test_the_boxes_that_cost_least_are_merged() -> None:
    source, target = np.array([5] * 90 + [6, 20]), np.array([5] * 90 + [5, 30])
    assert choose_boxes(source, target, 3) == [(5, 5), (6, 5), (20, 30)]
    # As long as the longest, one pair has 39 tokens more; as long as it, ninety have 1 more each.
    assert choose_boxes(source, target, 2) == [(5, 5), (20, 30)]
    assert choose_boxes(source, target, 1) == [(20, 30)]


@pytest.mark.parametrize("budget", [300, 4096])
def test_each_pair_is_in_one_batch_of_an_epoch_and_fits_its_shape(budget: int) -> None:
    source, target = lengths_like_captions(3000)
    plan = ShapedPlan(source, target, batch_tokens=budget, shapes=12, seed=1)
    sequence = PlannedBatches(plan)
    assert len(plan.shapes) <= 12
    first, second = (
        [sequence[n] for n in range(e * len(plan), (e + 1) * len(plan))] for e in (0, 1)
    )
    for keys in (first, second):
        assert sorted(np.concatenate([key.pairs for key in keys]).tolist()) == list(range(3000))
        for key in keys:
            shape = key.shape
            assert shape is not None and shape in plan.shapes
            assert shape.rows * max(shape.source, shape.target) <= budget
            assert shape.rows - 1 <= len(key.pairs) <= shape.rows
            assert (source[key.pairs] < shape.source).all()
            assert (target[key.pairs] < shape.target).all()
            assert (target[key.pairs] + 1).sum() <= shape.labels
    assert {frozenset(k.pairs.tolist()) for k in first} != {
        frozenset(k.pairs.tolist()) for k in second
    }
    assert sequence.largest()[0] == max(shape.positions for shape in plan.shapes)
    assert plan.identity() != ShapedPlan(source, target, batch_tokens=budget, shapes=3).identity()


def test_thirty_two_shapes_cost_three_percent_at_most() -> None:
    lengths = lengths_like_captions(29_000)
    plain = BatchPlan(*lengths, batch_tokens=4096, seed=1)
    few = ShapedPlan(*lengths, batch_tokens=4096, shapes=32, seed=1)
    positions = [int(plan.positions(plan.epoch(0)).sum()) for plan in (plain, few)]
    assert positions[1] < 1.03 * positions[0]


def test_long_text_has_boxes_for_all_its_lengths() -> None:
    lengths = np.random.default_rng(1).integers(1, 250, (2, 20_000))
    boxes = choose_boxes(*lengths, 20)
    assert boxes[-1] == (249, 249) and len(boxes) <= 20


def test_pairs_that_cannot_be_batched_are_refused() -> None:
    with pytest.raises(InputError, match=r"31 tokens, eos included, and data\.batch_tokens is 30"):
        ShapedPlan(np.array([30]), np.array([2]), batch_tokens=30, shapes=4)
    with pytest.raises(InputError, match="0 pairs"):
        ShapedPlan(np.array([], int), np.array([], int), batch_tokens=30, shapes=4)
