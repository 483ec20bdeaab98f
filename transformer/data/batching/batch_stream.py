"""Endless rows of batches: of one corpus, or of several that share a row.

Knows plans, neither ranks nor what the pairs are (the protocol is sampler.py's ``BatchSequence``).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int

from transformer.data.batching.sampler import BatchKey, BatchPlan, BatchSequence, EpochBatches

_BLOCK = 1_000


class PlannedBatches:
    """The epochs of one plan, one after the other."""

    def __init__(self, plan: BatchPlan, corpus: int = 0) -> None:
        """Follow a plan of the given corpus."""
        self.plan = plan
        self._corpus = corpus
        # Ranks and updates straddle the border of two epochs.
        self._epoch = lru_cache(maxsize=2)(plan.epoch)

    def __getitem__(self, number: int) -> BatchKey:
        """Return a batch, at whatever number; the first of an epoch lays that epoch out."""
        epoch, index = divmod(number, len(self.plan))
        batches: EpochBatches = self._epoch(epoch)
        return BatchKey(epoch, batches[index], self._corpus)

    def largest(self) -> tuple[int, BatchKey]:
        """Return the batch of the first epoch with the most positions, and how many it has."""
        batches = self._epoch(0)
        positions = self.plan.positions(batches)
        index = int(positions.argmax())
        return int(positions[index]), BatchKey(0, batches[index], self._corpus)

    @property
    def epoch_length(self) -> int:
        """Number of batches that make an epoch."""
        return len(self.plan)

    def epochs(self, number: int) -> float:
        """Return how many epochs the batches before this one make."""
        return number / len(self.plan)

    def identity(self) -> dict[str, Any]:
        """Return what two rows have in common if and only if they give the same batches."""
        return self.plan.identity()


class MixedBatches:
    """Batches of several rows by turns, at random, in fixed shares.

    A batch is of one row alone, and each row keeps its own epochs: no pair comes twice in an epoch
    of its corpus. Each thousand batches hold the shares exactly (to a thousandth, and at least one
    batch of each row), so that the place in every row follows from the number.
    """

    def __init__(self, rows: Sequence[BatchSequence], shares: Sequence[float], seed: int) -> None:
        """Mix.

        Args:
            rows: one a corpus.
            shares: of the batches, for each row, above 0; their sum does not matter.
            seed: of the order.
        """
        self._rows, self._seed = list(rows), seed
        self._counts = _apportioned(np.asarray(shares, dtype=np.float64), _BLOCK)
        self._block = lru_cache(maxsize=2)(self._shuffled)

    def __getitem__(self, number: int) -> BatchKey:
        """Return a batch, at whatever number."""
        block, position = divmod(number, _BLOCK)
        turns = self._block(block)
        row = int(turns[position])
        earlier = block * int(self._counts[row]) + int((turns[:position] == row).sum())
        return self._rows[row][earlier]

    def largest(self) -> tuple[int, BatchKey]:
        """Return the largest of the largest batches of each row."""
        return max((row.largest() for row in self._rows), key=lambda found: found[0])

    @property
    def epoch_length(self) -> int | None:
        """Number of batches of one epoch of every row together."""
        known = [length for row in self._rows if (length := row.epoch_length) is not None]
        return sum(known) if len(known) == len(self._rows) else None

    def epochs(self, number: int) -> float:
        """Return how often as many batches as an epoch of all rows has come before this one."""
        return number / (self.epoch_length or math.inf)

    def identity(self) -> dict[str, Any]:
        """Return what two rows have in common if and only if they give the same batches."""
        return {
            "rows": [row.identity() for row in self._rows],
            "shares": self._counts.tolist(),
            "seed": self._seed,
        }

    def _shuffled(self, block: int) -> Int[np.ndarray, " place"]:
        turns = np.repeat(np.arange(len(self._rows)), self._counts)
        # A third number, so that it is not the random order of an epoch of the same number.
        return np.random.default_rng([self._seed, block, 2]).permutation(turns)


def _apportioned(shares: np.ndarray, total: int) -> Int[np.ndarray, " row"]:
    """Round shares to whole numbers of the given sum, at least 1 each, by largest remainders."""
    exact = shares / shares.sum() * (total - len(shares)) + 1
    counts = np.floor(exact).astype(np.int64)
    missing = total - counts.sum()
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts
