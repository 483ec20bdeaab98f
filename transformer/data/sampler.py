"""Token-budget batches in an order that is a pure function of lengths, seed and epoch.

Knows lengths only, neither text nor tensors. Buckets by both lengths, as fairseq and Sockeye do.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from torch.utils.data import Sampler

from transformer.errors import InputError


@dataclass(frozen=True)
class BatchKey:
    """Names one batch: which pairs, and in which epoch (subword sampling depends on it)."""

    epoch: int
    pairs: Int[np.ndarray, " batch"]


@dataclass(frozen=True)
class EpochBatches:
    """The batches of one rank in one epoch: batch k is ``pairs[bounds[k]:bounds[k + 1]]``."""

    pairs: Int[np.ndarray, " pair"]
    bounds: Int[np.ndarray, " bound"]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> Int[np.ndarray, " batch"]:
        return self.pairs[self.bounds[index] : self.bounds[index + 1]]


class BatchPlan:
    """Cuts a corpus into batches, shuffles them for an epoch, and deals them out to ranks.

    Every pair is in exactly one batch of an epoch, over all ranks together. All ranks have as
    many batches, in every epoch the same number; the batches of one step are of like size. The
    padded tokens of the larger side, rows times the longest of either side with its eos, never
    exceed the budget.
    """

    def __init__(
        self,
        source_lengths: Int[np.ndarray, " pair"],
        target_lengths: Int[np.ndarray, " pair"],
        *,
        batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Lay the pairs out by length; the work of an epoch is done in `epoch`.

        Args:
            source_lengths: pieces of each source, eos not counted.
            target_lengths: pieces of each target, eos not counted.
            batch_tokens: the budget.
            seed: of the order.
            shuffle: otherwise the order is the same in every epoch.
            rank: whose batches `epoch` returns.
            world_size: number of ranks.

        Raises:
            InputError: no pairs, a pair longer than the budget, or fewer pairs than equal shares
                need (no pair is repeated or left out).
        """
        self._source = np.asarray(source_lengths, dtype=np.int64) + 1
        self._target = np.asarray(target_lengths, dtype=np.int64) + 1
        self._seed, self._shuffle = seed, shuffle
        self._rank, self._world_size = rank, world_size
        longest = np.maximum(self._source, self._target)
        if not len(longest):
            raise InputError("no sentence pairs are left to train or validate on")
        if longest.max() > batch_tokens:
            raise InputError(
                f"pair {longest.argmax():,} has {longest.max():,} tokens, eos included, and "
                f"data.batch_tokens is {batch_tokens}; set data.batch_tokens={longest.max()} or "
                "more, or data.max_length lower"
            )
        self._layout = _by_length(self._source, self._target)
        self._longest = longest[self._layout]
        self._batch_tokens = batch_tokens
        self._count, self._rotates = self._batch_count()

    def __len__(self) -> int:
        """Return the number of batches of one rank, in any epoch."""
        return self._count // self._world_size

    def epoch(self, epoch: int) -> EpochBatches:
        """Return this rank's batches of an epoch."""
        pairs, bounds = self._cut(epoch)
        steps = self._dealt(bounds, pairs, epoch)
        mine = steps[:, self._rank]
        sizes = np.diff(bounds)[mine]
        ends = np.cumsum(sizes)
        # The pairs of batch k lie at bounds[mine[k]] + 0, 1, 2, ...
        index = np.repeat(bounds[mine] - (ends - sizes), sizes) + np.arange(ends[-1])
        return EpochBatches(pairs[index], np.concatenate([[0], ends]))

    def identity(self) -> dict[str, int]:
        """Return what two plans have in common if and only if they give the same batches."""
        lengths = np.stack([self._source, self._target])
        return {
            "pairs": len(self._source),
            "lengths": zlib.crc32(lengths.tobytes()),
            "batch_tokens": self._batch_tokens,
            "seed": self._seed,
            "world_size": self._world_size,
        }

    def padding(self, epoch: int) -> float:
        """Return the share of padding in all positions of both sides, over this rank's batches."""
        batches = self.epoch(epoch)
        starts, rows = batches.bounds[:-1], np.diff(batches.bounds)
        real = padded = 0
        for lengths in (self._source[batches.pairs], self._target[batches.pairs]):
            real += int(lengths.sum())
            padded += int((np.maximum.reduceat(lengths, starts) * rows).sum())
        return 1 - real / padded

    def _batch_count(self) -> tuple[int, bool]:
        """Return the number of batches over all ranks, and whether epochs start to cut anywhere.

        Wherever a shuffled epoch starts to cut, it needs at most one batch more than from the
        start: the interval that holds the starting point becomes two.
        """
        least = len(_cut_greedily(self._longest, self._batch_tokens)) - 1
        pairs, ranks = len(self._longest), self._world_size
        for extra in (1, 0) if self._shuffle else (0,):
            count = -(-(least + extra) // ranks) * ranks
            if count <= pairs:
                return count, extra == 1
        raise InputError(
            f"{pairs:,} pairs in {least:,} batches cannot be shared by {ranks} ranks without "
            "repeating one; use fewer devices or a larger data.batch_tokens"
        )

    def _random(self, epoch: int, stage: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, epoch, stage])

    def _cut(self, epoch: int) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " bound"]]:
        pairs, longest = self._layout, self._longest
        if not self._shuffle:
            bounds = _cut_greedily(longest, self._batch_tokens)
            return pairs, _split_largest(bounds, self._count)
        random = self._random(epoch, 0)
        pairs = self._mixed(random)
        start = int(random.integers(len(pairs))) if self._rotates else 0
        before = _cut_greedily(longest[:start], self._batch_tokens)
        after = _cut_greedily(longest[start:], self._batch_tokens) + start
        return pairs, _split_largest(np.concatenate([before[:-1], after]), self._count)

    def _mixed(self, random: np.random.Generator) -> Int[np.ndarray, " pair"]:
        """Shuffle pairs of equal lengths among each other: the lengths keep their order."""
        source, target = self._source[self._layout], self._target[self._layout]
        new = (np.diff(source, prepend=0) != 0) | (np.diff(target, prepend=0) != 0)
        cell = np.cumsum(new)
        return self._layout[np.lexsort((random.random(len(cell)), cell))]

    def _dealt(
        self,
        bounds: Int[np.ndarray, " bound"],
        pairs: Int[np.ndarray, " pair"],
        epoch: int,
    ) -> Int[np.ndarray, "step rank"]:
        """Put batches of like size into one step, and the steps in random order."""
        tokens = np.add.reduceat((self._source + self._target)[pairs], bounds[:-1])
        # batch -> step rank
        steps = np.argsort(tokens, kind="stable").reshape(-1, self._world_size)
        if not self._shuffle:
            return steps
        random = self._random(epoch, 1)
        return random.permuted(random.permutation(steps), axis=1)


class BatchSampler(Sampler[BatchKey]):
    """Yields one key a batch for ``DataLoader(..., sampler=..., batch_size=None)``."""

    def __init__(self, plan: BatchPlan) -> None:
        """Follow a plan, from the first batch of epoch 0 on."""
        self.plan = plan
        self._epoch, self._start = 0, 0

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch."""
        self._epoch = epoch

    def start_at(self, index: int) -> None:
        """Let the next iteration (that one only) begin at batch ``index``."""
        self._start = index

    def __iter__(self) -> Iterator[BatchKey]:
        start, self._start = self._start, 0
        batches = self.plan.epoch(self._epoch)
        for index in range(start, len(batches)):
            yield BatchKey(self._epoch, batches[index])

    def __len__(self) -> int:
        return len(self.plan)


def _by_length(
    source: Int[np.ndarray, " pair"], target: Int[np.ndarray, " pair"]
) -> Int[np.ndarray, " pair"]:
    """Order pairs so that neighbours are alike in both lengths.

    The larger side grows; within one length of it the difference of the sides runs up, then down
    for the next length, like a snake, so that there is no jump from one length to the next.
    """
    longest, difference = np.maximum(source, target), source - target
    return np.lexsort((np.where(longest % 2 == 0, difference, -difference), longest))


def _cut_greedily(
    longest: Int[np.ndarray, " pair"], batch_tokens: int
) -> Int[np.ndarray, " bound"]:
    """Fill batch after batch; ``longest`` never falls, so a batch's last pair is its longest."""
    bounds = [0]
    while bounds[-1] < len(longest):
        start = bounds[-1]
        window = longest[start : start + batch_tokens // int(longest[start])]
        padded = window * np.arange(1, len(window) + 1)
        bounds.append(start + int(np.searchsorted(padded, batch_tokens, side="right")))
    return np.asarray(bounds, dtype=np.int64)


def _split_largest(bounds: Int[np.ndarray, " bound"], count: int) -> Int[np.ndarray, " finer"]:
    """Halve the batches with the most rows until there are ``count``."""
    while (missing := count - (len(bounds) - 1)) > 0:
        sizes = np.diff(bounds)
        divisible = np.flatnonzero(sizes > 1)
        largest = divisible[np.argsort(-sizes[divisible], kind="stable")[:missing]]
        bounds = np.sort(np.concatenate([bounds, bounds[largest] + sizes[largest] // 2]))
    return bounds
