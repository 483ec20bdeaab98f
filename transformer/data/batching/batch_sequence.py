"""Endless sequences of batches, of one or several corpora, and their assignment to ranks."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int
from torch.utils.data import Dataset

from transformer.data.batching.token_batches import BatchKey, BatchPlan, EpochBatches

_BLOCK = 1_000
# Spare batches of augmented epochs: this, divided by the square root of the number of pairs.
_LENGTH_DEVIATION = 1.5

B = TypeVar("B")
Lengths = tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]
"""Tokens of each source and target, without bos and eos."""
Gather = Callable[[Any], list[Any]]
"""Returns the values that all ranks give, when all of them call it."""
EpochLengths = Callable[[int], Lengths]


class BatchSequence(ABC):
    """All batches of training, numbered from 0, without an end."""

    def assign(self, rank: int, ranks: int) -> None:
        """Say who asks: of a stream each rank makes its own batches; else they are the same."""
        del rank, ranks

    @abstractmethod
    def __getitem__(self, number: int) -> BatchKey:
        """Return a batch by number, which is one of this rank."""

    @abstractmethod
    def largest(self) -> tuple[int, BatchKey]:
        """Return the largest of the first batches, after its number of positions."""

    @property
    @abstractmethod
    def epoch_length(self) -> int | None:
        """Number of batches of an epoch; None: unknown."""

    def epochs(self, number: int) -> float:
        """Return the number of epochs before this batch, such as 3.4."""
        return number / (self.epoch_length or math.inf)

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return values that are equal if and only if the batches are."""

    def state_dict(self, number: int, gather: Gather) -> dict[str, Any] | None:
        """Return the state of all ranks at a batch; None if its number is enough to find it."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, perhaps with other ranks; ignored where none is needed."""
        del state


class PlannedBatches(BatchSequence):
    """The epochs of one plan, one after another."""

    def __init__(self, plan: BatchPlan, corpus: int = 0) -> None:
        self.plan = plan
        self._corpus = corpus
        # Ranks and updates straddle the border of two epochs.
        self._epoch = lru_cache(maxsize=2)(plan.epoch)

    def __getitem__(self, number: int) -> BatchKey:
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
        return len(self.plan)

    def identity(self) -> dict[str, Any]:
        return self.plan.identity()


class ReplannedBatches(PlannedBatches):
    """Epochs planned one by one, in as many batches; one that needs more has the first plan."""

    def __init__(
        self, lengths: EpochLengths, corpus: int = 0, *, batch_tokens: int, seed: int, content: str
    ) -> None:
        """Plan epochs of these lengths; ``content`` differs where the changes of pairs do."""
        self._lengths, self._content = lengths, content
        first = lengths(0)
        self._plan_of = partial(BatchPlan, batch_tokens=batch_tokens, seed=seed)
        count, pairs = len(self._plan_of(*first)), len(first[0])
        # Four standard deviations of the tokens of an epoch with augmentation=robust.
        headroom = _LENGTH_DEVIATION / math.sqrt(pairs)
        self._count = min(pairs, math.ceil(count * (1 + headroom)) + 2)
        super().__init__(self._plan_of(*first, batches=self._count), corpus)
        self._epoch = lru_cache(maxsize=2)(self._planned)

    def identity(self) -> dict[str, Any]:
        return self.plan.identity() | {"content": self._content}

    def _planned(self, epoch: int) -> EpochBatches:
        plan = self._plan_of(*self._lengths(epoch), batches=self._count)
        return (plan if len(plan) == self._count else self.plan).epoch(epoch)


class MixedBatches(BatchSequence):
    """Batches of several sequences in random order, with fixed sampling weights.

    Each batch comes from one sequence. Each sequence has its own epochs: no pair occurs twice in an
    epoch of its corpus. Each thousand batches have exactly the weights (to a thousandth, and at
    least one batch of each sequence). So the index in each sequence follows from the number.
    """

    def __init__(
        self, sequences: Sequence[PlannedBatches], weights: Sequence[float], seed: int
    ) -> None:
        """Mix one sequence for each corpus, with weights above 0 of any sum, in a seeded order."""
        self._sequences, self._seed = list(sequences), seed
        self._counts = _apportioned(np.asarray(weights, dtype=np.float64), _BLOCK)
        self._block = lru_cache(maxsize=2)(self._shuffled)

    def __getitem__(self, number: int) -> BatchKey:
        block, position = divmod(number, _BLOCK)
        turns = self._block(block)
        chosen = int(turns[position])
        earlier = block * int(self._counts[chosen]) + int((turns[:position] == chosen).sum())
        return self._sequences[chosen][earlier]

    def largest(self) -> tuple[int, BatchKey]:
        return max((each.largest() for each in self._sequences), key=lambda found: found[0])

    @property
    def epoch_length(self) -> int:
        return sum(each.epoch_length for each in self._sequences)

    def identity(self) -> dict[str, Any]:
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


class PlannedDataset(Dataset[B], ABC):
    """Makes the batch of a key, and has the lengths for planning batches."""

    @abstractmethod
    def __getitem__(self, key: BatchKey) -> B: ...

    @abstractmethod
    def lengths(self) -> Lengths:
        """Return the lengths of source and target to plan batches with."""

    @property
    def lengths_of_epoch(self) -> EpochLengths | None:
        """The lengths in an epoch; None: the same in all epochs."""
        return None


@dataclass(frozen=True)
class MixedDataset(Dataset[B]):
    """Several corpora; a key has the number of its corpus."""

    parts: Sequence[PlannedDataset[B]]

    def __getitem__(self, key: BatchKey) -> B:
        return self.parts[key.corpus][key]


@dataclass(frozen=True)
class RankAssignment:
    """Assignment of consecutive batches to ranks and updates.

    Update u takes the u-th group of ``ranks * accumulation`` batches, counted from the first batch
    with this assignment, and rank r every ``ranks``-th batch of them.
    """

    ranks: int = 1
    accumulation: int = 1

    @property
    def batches(self) -> int:
        """Batches of an update, over all ranks."""
        return self.ranks * self.accumulation


def next_batch(
    before: dict[str, Any] | None, done: int, row: BatchSequence, assignment: RankAssignment
) -> int:
    """Return the first batch that a run, resumed from a loader state ``before``, has not used."""
    if before is None:
        return done * assignment.batches
    old = RankAssignment(before["ranks"], before["accumulation"])
    first: int = before["first"] + (done - before["since"]) * old.batches
    lengths = row.epoch_length, before["epoch_length"]
    if before["identity"] != row.identity() and lengths[0] and lengths[1]:
        # The same fraction of the same epoch.
        first = first * lengths[0] // lengths[1]
    return first
