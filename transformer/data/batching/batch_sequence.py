"""The order of batches: plans of an epoch, endless sequences of epochs, assignment to ranks."""

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int
from torch.utils.data import Dataset

from transformer.common.errors import InputError
from transformer.data.batching.batch import BatchShape


@dataclass(frozen=True)
class BatchKey:
    """Key of a batch: pairs of a corpus, and the epoch, which seeds subword sampling."""

    epoch: int
    pairs: Int[np.ndarray, " batch"]
    corpus: int = 0
    shape: BatchShape | None = None
    """Pad to this shape, if the batch fits."""


@dataclass(frozen=True)
class EpochBatches:
    """The batches of one epoch: batch k is ``pairs[bounds[k]:bounds[k + 1]]``."""

    pairs: Int[np.ndarray, " pair"]
    bounds: Int[np.ndarray, " bound"]
    shapes: Sequence[BatchShape] | None = None
    """Of the batches, if there are few (batch_shapes.py)."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> Int[np.ndarray, " batch"]:
        return self.pairs[self.bounds[index] : self.bounds[index + 1]]

    def key(self, epoch: int, index: int, corpus: int) -> BatchKey:
        """The key of a batch."""
        shape = None if self.shapes is None else self.shapes[index]
        return BatchKey(epoch, self[index], corpus, shape)


class EpochPlan(ABC):
    """Divides a corpus into batches, and shuffles them for an epoch.

    Every pair is in one batch of an epoch; all epochs have the same number of batches.
    """

    def __init__(
        self,
        source_lengths: Int[np.ndarray, " pair"],
        target_lengths: Int[np.ndarray, " pair"],
        *,
        batch_tokens: int,
        seed: int,
    ) -> None:
        """Read lengths in subwords without eos; raises InputError for one above the budget."""
        # int32 saves memory: int64 takes 80 MB for ten million pairs.
        self._source = np.asarray(source_lengths, dtype=np.int32) + np.int32(1)
        self._target = np.asarray(target_lengths, dtype=np.int32) + np.int32(1)
        self._batch_tokens = batch_tokens
        self._seed = seed
        longest = max(
            (int(side.max()) for side in (self._source, self._target) if len(side)), default=0
        )
        if longest > batch_tokens:
            raise InputError(
                f"the longest pair has {longest:,} tokens, eos included, and data.batch_tokens is "
                f"{batch_tokens}; set data.batch_tokens={longest} or more, or data.max_length lower"
            )

    @abstractmethod
    def __len__(self) -> int:
        """Number of batches of every epoch."""

    @abstractmethod
    def epoch(self, epoch: int) -> EpochBatches:
        """The batches of an epoch, in their order."""

    @abstractmethod
    def positions(self, batches: EpochBatches) -> Int[np.ndarray, " batch"]:
        """Return the tokens of both sides of each batch, padding and eos included."""

    def identity(self) -> dict[str, int]:
        """Return values that are equal if and only if the batches are."""
        return {
            "pairs": len(self._source),
            "lengths": self._checksum,
            "batch_tokens": self._batch_tokens,
            "seed": self._seed,
        }

    @cached_property
    def _checksum(self) -> int:
        source = zlib.crc32(self._source.astype(np.int64).tobytes())
        return zlib.crc32(self._target.astype(np.int64).tobytes(), source)


class BatchPlan(EpochPlan):
    """Batches of pairs of similar lengths.

    Rows times the longest side of a batch with its eos never exceed the budget.
    """

    def __init__(
        self,
        source_lengths: Int[np.ndarray, " pair"],
        target_lengths: Int[np.ndarray, " pair"],
        *,
        batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        multiple_of: int = 1,
        batches: int = 0,
    ) -> None:
        """Sort the pairs by length (subwords without eos); `epoch` does the rest.

        ``multiple_of`` divides the number of batches, so that each rank has the same number; there
        are at least ``batches``. Raises InputError for a pair longer than the budget, or fewer
        pairs than ranks.
        """
        super().__init__(source_lengths, target_lengths, batch_tokens=batch_tokens, seed=seed)
        self._shuffle = shuffle
        self._layout = _by_length(self._source, self._target)
        self._longest = np.maximum(self._source, self._target)[self._layout]
        # Starts of the groups of pairs with equal lengths in the layout.
        starts_group = np.diff(self._source[self._layout], prepend=0) != 0
        starts_group |= np.diff(self._target[self._layout], prepend=0) != 0
        self._group_starts = np.flatnonzero(starts_group)
        self._count, self._rotates = self._batch_count(multiple_of, batches)

    def __len__(self) -> int:
        return self._count

    def epoch(self, epoch: int) -> EpochBatches:
        if not self._shuffle:
            bounds = _split_largest(self._full_batches(0, len(self._layout)), self._count)
            return EpochBatches(self._layout, bounds)
        random = np.random.default_rng([self._seed, epoch, 0])
        pairs = self._mixed(random)
        start = int(random.integers(len(pairs))) if self._rotates else 0
        before = self._full_batches(0, start)
        after = self._full_batches(start, len(pairs))
        bounds = _split_largest(np.concatenate([before[:-1], after]), self._count)
        order = np.random.default_rng([self._seed, epoch, 1]).permutation(self._count)
        sizes = np.diff(bounds)[order]
        ends = np.cumsum(sizes)
        # The pairs of batch k lie at bounds[order[k]] + 0, 1, 2, ...
        dtype = self._layout.dtype
        index = np.repeat((bounds[order] - (ends - sizes)).astype(dtype), sizes)
        index += np.arange(len(index), dtype=dtype)
        return EpochBatches(pairs[index], np.concatenate([[0], ends]))

    def positions(self, batches: EpochBatches) -> Int[np.ndarray, " batch"]:
        starts = batches.bounds[:-1]
        source = np.maximum.reduceat(self._source[batches.pairs], starts)
        target = np.maximum.reduceat(self._target[batches.pairs], starts)
        return np.diff(batches.bounds) * (source + target)

    def _batch_count(self, multiple_of: int, least: int) -> tuple[int, bool]:
        """Return the number of batches, and whether an epoch may start anywhere in the layout.

        Filling from a random start takes one batch more, which a small corpus may not have.
        """
        pairs = len(self._longest)
        fewest = len(self._full_batches(0, pairs)) - 1
        for rotates in (True, False) if self._shuffle else (False,):
            needed = max(fewest + rotates, least)
            count = math.ceil(needed / multiple_of) * multiple_of
            if 0 < count <= pairs:
                return count, rotates
        raise InputError(
            f"{pairs:,} pairs are too few for {multiple_of} ranks; use fewer devices or more pairs"
        )

    def _full_batches(self, start: int, end: int) -> Int[np.ndarray, " bound"]:
        """Fill batches with a part of the layout; the last pair of the part is the longest."""
        bounds = [start]
        while bounds[-1] < end:
            first = bounds[-1]
            most_pairs = self._batch_tokens // int(self._longest[first])
            window = self._longest[first : min(end, first + most_pairs)]
            padded = window * np.arange(1, len(window) + 1)
            bounds.append(first + int(np.searchsorted(padded, self._batch_tokens, side="right")))
        return np.asarray(bounds, dtype=np.int64)

    def _mixed(self, random: np.random.Generator) -> Int[np.ndarray, " pair"]:
        """Shuffle pairs of equal lengths among each other."""
        drawn = random.random(len(self._layout))
        order = np.arange(len(drawn), dtype=self._layout.dtype)
        ends = np.append(self._group_starts[1:], len(drawn))
        for start, end in zip(self._group_starts.tolist(), ends.tolist(), strict=True):
            if end - start > 1:
                order[start:end] = np.argsort(drawn[start:end], kind="stable")
                order[start:end] += start
        return self._layout[order]


def _by_length(
    source: Int[np.ndarray, " pair"], target: Int[np.ndarray, " pair"]
) -> Int[np.ndarray, " pair"]:
    """Order pairs by the longer side, then by the difference, which rises and falls in turn."""
    longest = np.maximum(source, target)
    # Numbers of 16 bits are sorted in linear time.
    dtype = np.int16 if len(longest) and longest.max() < 2**15 else np.int32
    longest = longest.astype(dtype)
    difference = (source - target).astype(dtype)
    order = np.lexsort((np.where(longest % 2 == 0, difference, -difference), longest))
    return order.astype(np.int32) if len(order) < 2**31 else order


def _split_largest(bounds: Int[np.ndarray, " bound"], count: int) -> Int[np.ndarray, " finer"]:
    """Halve the batches with the most rows until there are ``count``."""
    while len(bounds) - 1 < count:
        missing = count - (len(bounds) - 1)
        sizes = np.diff(bounds)
        divisible = np.flatnonzero(sizes > 1)
        largest = divisible[np.argsort(-sizes[divisible], kind="stable")[:missing]]
        bounds = np.sort(np.concatenate([bounds, bounds[largest] + sizes[largest] // 2]))
    return bounds


# Consecutive batches of a mixture that have exactly its weights; more for many corpora.
_MIXED_BLOCK = 1_000
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
        """Set the rank that reads, and the number of ranks; only a stream needs them."""
        del rank, ranks

    @abstractmethod
    def __getitem__(self, number: int) -> BatchKey:
        """Return a batch of this rank by its number."""

    @abstractmethod
    def largest(self) -> tuple[int, BatchKey]:
        """Return the number of positions of the largest of the first batches, and its key."""

    @property
    @abstractmethod
    def epoch_length(self) -> int | None:
        """Number of batches of an epoch; None if it is unknown."""

    def epochs(self, number: int) -> float:
        """Return the number of epochs before this batch, such as 3.4."""
        return number / (self.epoch_length or math.inf)

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return values that are equal if and only if the batches are."""

    def state_dict(self, number: int, gather: Gather) -> dict[str, Any] | None:
        """Return the state of all ranks before a batch; None if the number alone finds it."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, perhaps on another number of ranks."""
        del state

    def close(self) -> None:
        """End the processes that the sequence has started."""
        return


class PlannedBatches(BatchSequence):
    """The epochs of one plan, one after another."""

    def __init__(self, plan: EpochPlan, corpus: int = 0) -> None:
        self.plan = plan
        self._corpus = corpus
        # The batches of one update may belong to two epochs.
        self._epoch = lru_cache(maxsize=2)(plan.epoch)

    def __getitem__(self, number: int) -> BatchKey:
        epoch, index = divmod(number, len(self.plan))
        batches: EpochBatches = self._epoch(epoch)
        return batches.key(epoch, index, self._corpus)

    def largest(self) -> tuple[int, BatchKey]:
        """Return the number of positions of the largest batch of the first epoch, and the batch."""
        batches = self._epoch(0)
        positions = self.plan.positions(batches)
        index = int(positions.argmax())
        return int(positions[index]), batches.key(0, index, self._corpus)

    @property
    def epoch_length(self) -> int:
        return len(self.plan)

    def identity(self) -> dict[str, Any]:
        return self.plan.identity()


class ReplannedBatches(PlannedBatches):
    """Epochs whose pairs have other lengths each time, such as augmented ones.

    Each epoch is planned anew, in the same number of batches. An epoch that needs more batches has
    the plan of the first epoch.
    """

    def __init__(
        self, lengths: EpochLengths, corpus: int = 0, *, batch_tokens: int, seed: int, content: str
    ) -> None:
        """Plan epochs of these lengths; ``content`` identifies what changes the pairs."""
        self._lengths = lengths
        self._content = content
        self._plan_of = partial(BatchPlan, batch_tokens=batch_tokens, seed=seed)
        first = lengths(0)
        pairs = len(first[0])
        count = len(self._plan_of(*first))
        # Four standard deviations of the tokens of an epoch with augmentation=robust.
        headroom = _LENGTH_DEVIATION / math.sqrt(pairs)
        self._count = min(pairs, math.ceil(count * (1 + headroom)) + 2)
        super().__init__(self._plan_of(*first, batches=self._count), corpus)
        self._epoch = lru_cache(maxsize=2)(self._planned)

    def identity(self) -> dict[str, Any]:
        return self.plan.identity() | {"content": self._content}

    def _planned(self, epoch: int) -> EpochBatches:
        plan: EpochPlan = self._plan_of(*self._lengths(epoch), batches=self._count)
        if len(plan) != self._count:
            plan = self.plan
        return plan.epoch(epoch)


class MixedBatches(BatchSequence):
    """Batches of several sequences in random order, with fixed sampling weights.

    Each batch comes from one sequence. Each sequence has its own epochs: no pair occurs twice in an
    epoch of its corpus. Each thousand batches (or ten for each sequence, if these are more) have
    exactly the weights, rounded, and at least one batch of each sequence, so the number of a batch
    gives its index in its sequence.
    """

    def __init__(
        self, sequences: Sequence[PlannedBatches], weights: Sequence[float], seed: int
    ) -> None:
        """Mix one sequence for each corpus, with weights above 0 of any sum, in a seeded order."""
        self._sequences = list(sequences)
        self._seed = seed
        self._length = max(_MIXED_BLOCK, 10 * len(self._sequences))
        self._counts = _apportioned(np.asarray(weights, dtype=np.float64), self._length)
        self._block = lru_cache(maxsize=2)(self._shuffled)

    def __getitem__(self, number: int) -> BatchKey:
        block, position = divmod(number, self._length)
        turns = self._block(block)
        chosen = int(turns[position])
        earlier = block * int(self._counts[chosen]) + int((turns[:position] == chosen).sum())
        return self._sequences[chosen][earlier]

    def largest(self) -> tuple[int, BatchKey]:
        candidates = [sequence.largest() for sequence in self._sequences]
        return max(candidates, key=lambda candidate: candidate[0])

    @property
    def epoch_length(self) -> int:
        return sum(sequence.epoch_length for sequence in self._sequences)

    def identity(self) -> dict[str, Any]:
        return {
            "rows": [sequence.identity() for sequence in self._sequences],
            "shares": self._counts.tolist(),
            "seed": self._seed,
        }

    def _shuffled(self, block: int) -> Int[np.ndarray, " block"]:
        turns = np.repeat(np.arange(len(self._sequences)), self._counts)
        # The third number makes the order differ from that of an epoch with the same number.
        return np.random.default_rng([self._seed, block, 2]).permutation(turns)


def _apportioned(weights: np.ndarray, total: int) -> Int[np.ndarray, " sequence"]:
    """Round weights to whole numbers of the given sum, at least 1 each, by largest remainders."""
    exact = np.maximum(weights / weights.sum() * total, 1)
    # What raises small sequences comes from the others, by what these have above 1.
    above = exact - 1
    if above.any():
        exact -= (exact.sum() - total) * above / above.sum()
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
    before: dict[str, Any] | None, done: int, sequence: BatchSequence, assignment: RankAssignment
) -> int:
    """Return the first batch after ``done`` updates; ``before``: loader state of a resumed run."""
    if before is None:
        return done * assignment.batches
    old = RankAssignment(before["ranks"], before["accumulation"])
    first: int = before["first"] + (done - before["since"]) * old.batches
    length = sequence.epoch_length
    old_length = before["epoch_length"]
    if before["identity"] != sequence.identity() and length and old_length:
        # Continue at the same fraction of the same epoch.
        first = first * length // old_length
    return first
