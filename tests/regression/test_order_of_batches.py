"""The batches of a seed never change: a resumed run depends on it."""

import zlib

import numpy as np
import pytest

from transformer.data.batching.batch_sequence import BatchPlan


@pytest.mark.parametrize(
    ("longest", "budget", "batches", "order", "lengths"),
    [
        (60, 512, 344, 3304687409, 2694695565),
        # Lengths of more than 15 bits, which are sorted in another way.
        (40_000, 50_000, 2824, 1305708925, 4229194793),
    ],
)
def test_the_order_is_what_it_was(
    longest: int, budget: int, batches: int, order: int, lengths: int
) -> None:
    random = np.random.default_rng(7)
    source = random.integers(1, longest, 5_000)
    target = np.clip(source + random.integers(-9, 10, 5_000), 1, longest)
    plan = BatchPlan(source, target, batch_tokens=budget, seed=3)
    assert len(plan) == batches
    assert plan.identity()["lengths"] == lengths
    check = 0
    for epoch in (0, 1):
        laid_out = plan.epoch(epoch)
        for numbers in (laid_out.pairs, laid_out.bounds):
            check = zlib.crc32(numbers.astype(np.int64).tobytes(), check)
    assert check == order
