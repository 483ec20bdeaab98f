"""Token-budget batches of an epoch: a pure function of lengths and seed, by both lengths."""

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from transformer.common.errors import InputError


@dataclass(frozen=True)
class BatchKey:
    """Key of a batch: pairs of a corpus, and the epoch, which seeds subword sampling."""

    epoch: int
    pairs: Int[np.ndarray, " batch"]
    corpus: int = 0


@dataclass(frozen=True)
class EpochBatches:
    """The batches of one epoch: batch k is ``pairs[bounds[k]:bounds[k + 1]]``."""

    pairs: Int[np.ndarray, " pair"]
    bounds: Int[np.ndarray, " bound"]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> Int[np.ndarray, " batch"]:
        return self.pairs[self.bounds[index] : self.bounds[index + 1]]


class BatchPlan:
    """Divides a corpus into batches, and shuffles them for an epoch.

    Every pair is in one batch of an epoch; all epochs have the same number of batches. Rows times
    the longest side of a batch with its eos never exceed the budget.
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
        # int32 saves memory: int64 takes 80 MB for ten million pairs.
        self._source = np.asarray(source_lengths, dtype=np.int32) + np.int32(1)
        self._target = np.asarray(target_lengths, dtype=np.int32) + np.int32(1)
        self._seed, self._shuffle = seed, shuffle
        longest = np.maximum(self._source, self._target)
        if len(longest) and longest.max() > batch_tokens:
            raise InputError(
                f"the longest pair has {longest.max():,} tokens, eos included, and "
                f"data.batch_tokens is {batch_tokens}; set data.batch_tokens={longest.max()} or "
                "more, or data.max_length lower"
            )
        self._layout = _by_length(self._source, self._target)
        self._longest = longest[self._layout]
        # Where pairs of other lengths begin in the layout.
        new = np.diff(self._source[self._layout], prepend=0) != 0
        new |= np.diff(self._target[self._layout], prepend=0) != 0
        self._cells = np.flatnonzero(new)
        self._batch_tokens = batch_tokens
        self._count, self._rotates = self._batch_count(multiple_of, batches)

    def __len__(self) -> int:
        return self._count

    def epoch(self, epoch: int) -> EpochBatches:
        """The batches of an epoch, in their order."""
        if not self._shuffle:
            bounds = _split_largest(self._full_batches(0, len(self._layout)), self._count)
            return EpochBatches(self._layout, bounds)
        random = np.random.default_rng([self._seed, epoch, 0])
        pairs = self._mixed(random)
        start = int(random.integers(len(pairs))) if self._rotates else 0
        before, after = self._full_batches(0, start), self._full_batches(start, len(pairs))
        bounds = _split_largest(np.concatenate([before[:-1], after]), self._count)
        order = np.random.default_rng([self._seed, epoch, 1]).permutation(self._count)
        sizes = np.diff(bounds)[order]
        ends = np.cumsum(sizes)
        # The pairs of batch k lie at bounds[order[k]] + 0, 1, 2, ...
        kind = self._layout.dtype
        index = np.repeat((bounds[order] - (ends - sizes)).astype(kind), sizes)
        index += np.arange(len(index), dtype=kind)
        return EpochBatches(pairs[index], np.concatenate([[0], ends]))

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

    def positions(self, batches: EpochBatches) -> Int[np.ndarray, " batch"]:
        """Return the tokens of both sides of each batch, padding and eos included."""
        starts, pairs = batches.bounds[:-1], batches.pairs
        source = np.maximum.reduceat(self._source[pairs], starts)
        target = np.maximum.reduceat(self._target[pairs], starts)
        return np.diff(batches.bounds) * (source + target)

    def _batch_count(self, multiple_of: int, least: int) -> tuple[int, bool]:
        """Return how many batches serve any start (one more), and whether one starts at random."""
        pairs = len(self._longest)
        fewest = len(self._full_batches(0, pairs)) - 1
        for extra in (1, 0) if self._shuffle else (0,):
            count = -(-max(fewest + extra, least) // multiple_of) * multiple_of
            if 0 < count <= pairs:
                return count, extra == 1
        raise InputError(
            f"{pairs:,} pairs are too few for {multiple_of} ranks; use fewer devices or more pairs"
        )

    def _full_batches(self, start: int, end: int) -> Int[np.ndarray, " bound"]:
        """Fill batches with a part of the layout; the last pair of the part is the longest."""
        bounds = [start]
        while bounds[-1] < end:
            first = bounds[-1]
            most = self._batch_tokens // int(self._longest[first])
            window = self._longest[first : min(end, first + most)]
            padded = window * np.arange(1, len(window) + 1)
            bounds.append(first + int(np.searchsorted(padded, self._batch_tokens, side="right")))
        return np.asarray(bounds, dtype=np.int64)

    def _mixed(self, random: np.random.Generator) -> Int[np.ndarray, " pair"]:
        """Shuffle pairs of equal lengths among each other."""
        drawn = random.random(len(self._layout))
        order = np.arange(len(drawn), dtype=self._layout.dtype)
        ends = np.append(self._cells[1:], len(drawn))
        for start, end in zip(self._cells.tolist(), ends.tolist(), strict=True):
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
    kind = np.int16 if len(longest) and longest.max() < 2**15 else np.int32
    longest, difference = longest.astype(kind), (source - target).astype(kind)
    order = np.lexsort((np.where(longest % 2 == 0, difference, -difference), longest))
    return order.astype(np.int32) if len(order) < 2**31 else order


def _split_largest(bounds: Int[np.ndarray, " bound"], count: int) -> Int[np.ndarray, " finer"]:
    """Halve the batches with the most rows until there are ``count``."""
    while (missing := count - (len(bounds) - 1)) > 0:
        sizes = np.diff(bounds)
        divisible = np.flatnonzero(sizes > 1)
        largest = divisible[np.argsort(-sizes[divisible], kind="stable")[:missing]]
        bounds = np.sort(np.concatenate([bounds, bounds[largest] + sizes[largest] // 2]))
    return bounds
