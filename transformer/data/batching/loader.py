"""Hands updates to the trainer: the micro-batches of this rank, from where the run stands.

Knows the endless row of batches, its shares, and how many updates are done; does not know texts or
models.
"""

import logging
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch.utils.data import DataLoader, Sampler

from transformer.data.batching.keyed_dataset import KeyedDataset
from transformer.data.batching.rank_assignment import RankAssignment, next_batch
from transformer.data.batching.sampler import BatchKey, BatchSequence

logger = logging.getLogger(__name__)

_CHANGED = {"lengths": "the text is another", "shards": "the shards are others"}
"""What has changed where the identity of a row has a checksum."""


@runtime_checkable
class Movable(Protocol):
    """A batch of tensors that counts its tokens."""

    @property
    def tokens(self) -> int:
        """All without padding."""

    @property
    def positions(self) -> int:
        """All with padding."""

    def to(self, device: torch.device | str, **kwargs: Any) -> Any:
        """Return the batch on a device."""


@runtime_checkable
class Placed(Protocol):
    """A row that finds a batch quickly only if it is told where it stood before it."""

    def state_dict(self, number: int) -> dict[str, Any]:
        """Return where it stands at a batch."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand there."""


B = TypeVar("B", bound=Movable)


@dataclass(frozen=True)
class Update(Generic[B]):
    """The micro-batches of one update on one rank."""

    batches: list[B]
    numbers: list[int]
    """Of each, in the endless row: what is drawn at random for it is drawn from this."""
    tokens: int
    """Of all of them, without padding."""
    positions: int
    """The same with padding."""

    @classmethod
    def of(cls, batches: list[B], numbers: list[int]) -> "Update[B]":
        """Count them where they are: later, on a GPU, it would have to finish its work first."""
        tokens = sum(batch.tokens for batch in batches)
        return cls(batches, numbers, tokens, sum(batch.positions for batch in batches))

    def to(self, device: torch.device | str, **kwargs: Any) -> "Update[B]":
        """Return the update on ``device``; Lightning calls this with ``non_blocking=True``."""
        return replace(self, batches=[batch.to(device, **kwargs) for batch in self.batches])


class _Keys(Sampler[BatchKey]):
    """The batches of one rank, without an end."""

    def __init__(self, row: BatchSequence, numbers: range) -> None:
        self._row, self._numbers = row, numbers

    def __iter__(self) -> Iterator[BatchKey]:
        for number in count(self._numbers.start, self._numbers.step):
            yield self._row[number]


class UpdateLoader(Generic[B]):
    """An endless iterable of updates, which Lightning takes as it is.

    It is no DataLoader itself and shows no sampler: Lightning would replace it in a distributed
    run, and with it the token budget. Where to begin follows from the number of updates done, by
    index, however many they are; it is asked when the first batch is, not when the loader is made:
    only then has Lightning restored it.
    """

    def __init__(
        self,
        dataset: KeyedDataset[B],
        row: BatchSequence,
        *,
        shares: RankAssignment,
        rank: int,
        done: Callable[[], int],
        workers: int,
        pin_memory: bool,
    ) -> None:
        """Load the batches of a row.

        Args:
            dataset: makes the batches.
            row: what is in them.
            shares: how they are dealt out.
            rank: whose batches these are.
            done: how many updates the run has made, those of the runs it resumes included.
            workers: processes that make batches; 0 makes them as they are asked for.
            pin_memory: in page-locked memory, for a GPU to fetch.
        """
        self.row, self.dataset, self.shares = row, dataset, shares
        self._rank, self._done = rank, done
        self._workers, self._pin_memory = workers, pin_memory
        self._before: dict[str, Any] | None = None
        # The first batch of the row that these shares deal out, and the updates done before.
        self._first = self._since = 0
        self._begun = False
        self._batches: Iterator[B] | None = None

    def __iter__(self) -> Iterator[Update[B]]:
        """Yield the updates that are not done yet; no batch before them is made."""
        self._begun = self._begin()
        numbers = range(self._first + self._rank, 2**63, self.shares.ranks)
        loader = DataLoader(
            self.dataset,
            sampler=_Keys(self.row, numbers),
            batch_size=None,
            collate_fn=_whole,
            num_workers=self._workers,
            prefetch_factor=4 if self._workers else None,
            pin_memory=self._pin_memory,
            worker_init_fn=_leave_sigterm_to_the_parent,
        )
        self._batches = iter(loader)
        try:
            for start in count(0, self.shares.accumulation):
                those = numbers[start : start + self.shares.accumulation]
                yield Update.of([next(self._batches) for _ in those], list(those))
        finally:
            self.close()

    def close(self) -> None:
        """End the worker processes.

        Left to the garbage collector they would end late, perhaps within another run, or never: an
        exception may hold on to what started them, and they do not heed SIGTERM.
        """
        batches, self._batches = self._batches, None
        if self._workers and batches is not None:
            workers: Any = batches
            workers._shutdown_workers()

    def state_dict(self) -> dict[str, Any]:
        """Return where these shares began in the row; the updates since are the trainer's."""
        row: Any = self.row
        return {
            "identity": self.row.identity(),
            "row": row.state_dict(self._next(self._done())) if isinstance(row, Placed) else None,
            "epoch_length": self.row.epoch_length,
            "ranks": self.shares.ranks,
            "accumulation": self.shares.accumulation,
            "first": self._first,
            "since": self._since,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another loader stood; says what has changed since.

        With another number of ranks or another accumulation the row stays whole: no pair twice in
        an epoch, none left out. With other batches the run goes on at the same part of its epoch.
        """
        self._before = state
        mine, before = self.state_dict(), state
        if isinstance(self.row, Placed) and before["row"] is not None:
            self.row.load_state_dict(before["row"])
        if self.shares != RankAssignment(before["ranks"], before["accumulation"]):
            logger.info(
                "going on with %d x %d batches an update (ranks x accumulation), %d x %d before; "
                "the row of batches stays whole",
                *(mine["ranks"], mine["accumulation"]),
                *(before["ranks"], before["accumulation"]),
            )
        old, new = before["identity"], mine["identity"]
        changed = [name for name in new if new[name] != old.get(name)]
        if changed:
            logger.warning(
                "resuming with other batches than before (%s): the rest of this epoch may repeat "
                "some pairs and miss others",
                ", ".join(_CHANGED.get(n, f"{n} {old.get(n)} -> {new[n]}") for n in changed),
            )

    def epochs(self, done: int) -> float:
        """Return how many epochs so many updates make, those of the runs it resumes included."""
        if not self._begun:
            self._begin()
        return self.row.epochs(self._next(done))

    def _next(self, done: int) -> int:
        """Return the first batch that these shares have not dealt out after so many updates."""
        return self._first + (done - self._since) * self.shares.batches

    def _begin(self) -> bool:
        """Note the first batch that is not done, and how many updates are."""
        self._since = self._done()
        self._first = next_batch(self._before, self._since, self.row, self.shares)
        return True


class EpochLoader(Generic[B]):
    """The batches of one rank in one epoch of a plan, to validate on.

    Where a rank has none it gets None once, and keeps step: Lightning would leave out everything
    else that it does at a validation too, while the others wait for it there.
    """

    def __init__(self, dataset: KeyedDataset[B], keys: list[BatchKey], *, pin_memory: bool) -> None:
        """Load the batches of the keys, in their order."""
        self._keys = keys
        self._loader = DataLoader(
            dataset,
            sampler=keys,
            batch_size=None,
            collate_fn=_whole,
            pin_memory=pin_memory,
        )

    def __len__(self) -> int:
        return max(1, len(self._keys))

    def __iter__(self) -> Iterator[B | None]:
        return iter(self._loader) if self._keys else iter([None])


def _leave_sigterm_to_the_parent(worker: int) -> None:
    """Let the training process finish its update, though a scheduler tells all processes to stop.

    They end with their loader (`UpdateLoader.close`).
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _whole(batch: Any) -> Any:
    return batch
