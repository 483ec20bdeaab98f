"""Plans packed batches: as many pairs as both sides hold, without padding between sentences.

Does not know tensors (packed_batch.py).
"""

from functools import cached_property

import numpy as np
from jaxtyping import Int

from transformer.data.batching.packed_batch import packed_length
from transformer.data.batching.sampler import BatchPlan, EpochBatches


class PackedPlan(BatchPlan):
    """Divides a corpus as `BatchPlan` does, but counts no padding between sentences.

    The tokens of neither side of a batch, each sentence with its eos, exceed the budget. Pairs of
    a batch are similar in their longer side only. If they were similar in both, as in `BatchPlan`,
    one side of most batches would be full long before the other.
    """

    def identity(self) -> dict[str, int]:
        """Return values that are equal if and only if the batches are."""
        return super().identity() | {"packing": True}

    def positions(self, batches: EpochBatches) -> Int[np.ndarray, " batch"]:
        """Return the positions of both sides of each batch, which are the same for all."""
        return np.full(len(batches), 2 * packed_length(self._batch_tokens))

    def memory(self, batches: EpochBatches) -> Int[np.ndarray, " batch"]:
        """Return numbers in the order of memory: that of attention in padded rows differs."""
        starts, pairs = batches.bounds[:-1], batches.pairs
        sides = (self._source, self._target)
        source, target = (np.maximum.reduceat(side[pairs], starts) for side in sides)
        return np.diff(batches.bounds) * (source + target).astype(np.int64) ** 2

    @cached_property
    def _totals(self) -> list[Int[np.ndarray, " bound"]]:
        """Tokens of each side before each pair in this order, and of all pairs."""
        pairs = self._layout[self._order]
        sides = (self._source, self._target)
        return [np.append(0, side[pairs].cumsum(dtype=np.int64)) for side in sides]

    @cached_property
    def _order(self) -> Int[np.ndarray, " pair"]:
        """Order of the layout by the longer side, in which the shorter sides are mixed.

        It is the same in all epochs, so that batches begin at the same lengths.
        """
        drawn = np.random.default_rng(self._seed).random(len(self._layout))
        return np.lexsort((drawn, self._longest)).astype(self._layout.dtype)

    def _cut(self, epoch: int) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " bound"]]:
        pairs, bounds = super()._cut(epoch)
        return pairs[self._order], bounds

    def _full_batches(self, start: int, end: int) -> Int[np.ndarray, " bound"]:
        bounds = [start]
        while bounds[-1] < end:
            # Each side is full after so many pairs.
            full = [
                int(np.searchsorted(total, total[bounds[-1]] + self._batch_tokens, side="right"))
                for total in self._totals
            ]
            bounds.append(min(end, min(full) - 1))
        return np.asarray(bounds, dtype=np.int64)
