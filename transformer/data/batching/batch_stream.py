"""Endless sequences of batches, of one or several corpora (sampler.py: ``BatchSequence``).

Does not know ranks or the pairs.
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
        """Return a batch by number; the first of an epoch plans that epoch."""
        epoch, index = divmod(number, len(self.plan))
        batches: EpochBatches = self._epoch(epoch)
        return BatchKey(epoch, batches[index], self._corpus)

    def largest(self) -> tuple[int, BatchKey]:
        """Return the number of positions of the largest batch of the first epoch, and the batch."""
        batches = self._epoch(0)
        positions = self.plan.positions(batches)
        index = int(positions.argmax())
        return int(positions[index]), BatchKey(0, batches[index], self._corpus)

    @property
    def epoch_length(self) -> int:
        """Number of batches that make an epoch."""
        return len(self.plan)

    def epochs(self, number: int) -> float:
        """Return the number of epochs before this batch."""
        return number / len(self.plan)

    def identity(self) -> dict[str, Any]:
        """Return values that are equal if and only if the batches are."""
        return self.plan.identity()


class MixedBatches:
    """Batches of several sequences in random order, with fixed sampling weights.

    Each batch is from one sequence, and each sequence keeps its own epochs: no pair comes twice in
    an epoch of its corpus. Each thousand batches have the weights exactly (to a thousandth, and at
    least one batch of each sequence), so that the index in each sequence follows from the number.
    """

    def __init__(
        self, sequences: Sequence[BatchSequence], weights: Sequence[float], seed: int
    ) -> None:
        """Mix one sequence for each corpus, with weights above 0 of any sum, in a seeded order."""
        self._sequences, self._seed = list(sequences), seed
        self._counts = _apportioned(np.asarray(weights, dtype=np.float64), _BLOCK)
        self._block = lru_cache(maxsize=2)(self._shuffled)

    def __getitem__(self, number: int) -> BatchKey:
        """Return a batch by number."""
        block, position = divmod(number, _BLOCK)
        turns = self._block(block)
        chosen = int(turns[position])
        earlier = block * int(self._counts[chosen]) + int((turns[:position] == chosen).sum())
        return self._sequences[chosen][earlier]

    def largest(self) -> tuple[int, BatchKey]:
        """Return the number of positions of the largest batch, and the batch."""
        return max((each.largest() for each in self._sequences), key=lambda found: found[0])

    @property
    def epoch_length(self) -> int | None:
        """Number of batches of one epoch of all sequences."""
        lengths = [each.epoch_length for each in self._sequences]
        return None if None in lengths else sum(length or 0 for length in lengths)

    def epochs(self, number: int) -> float:
        """Return the number of epochs before this batch."""
        return number / (self.epoch_length or math.inf)

    def identity(self) -> dict[str, Any]:
        """Return values that are equal if and only if the batches are."""
        return {
            "rows": [each.identity() for each in self._sequences],
            "shares": self._counts.tolist(),
            "seed": self._seed,
        }

    def _shuffled(self, block: int) -> Int[np.ndarray, " block"]:
        turns = np.repeat(np.arange(len(self._sequences)), self._counts)
        # The third number makes it differ from the order of an epoch with the same number.
        return np.random.default_rng([self._seed, block, 2]).permutation(turns)


def _apportioned(weights: np.ndarray, total: int) -> Int[np.ndarray, " sequence"]:
    """Round weights to whole numbers of the given sum, at least 1 each, by largest remainders."""
    exact = weights / weights.sum() * (total - len(weights)) + 1
    counts = np.floor(exact).astype(np.int64)
    missing = total - counts.sum()
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts
