"""Loads the micro-batches of this rank for each update, from the current update on."""

import logging
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from transformer.data.batching.batch import PaddedBatch
from transformer.data.batching.batch_sequence import (
    BatchKey,
    BatchSequence,
    Gather,
    RankAssignment,
    next_batch,
)

logger = logging.getLogger(__name__)

# Messages for keys of the identity that are checksums.
_CHANGED = {"lengths": "the text changed", "shards": "the shards changed"}

B = TypeVar("B", bound=PaddedBatch)


@dataclass(frozen=True)
class Update(Generic[B]):
    """The micro-batches of one update on one rank."""

    batches: list[B]
    numbers: list[int]
    """Numbers of the batches in the endless sequence; they seed the random numbers."""
    tokens: int
    positions: int

    @classmethod
    def of(cls, batches: list[B], numbers: list[int]) -> "Update[B]":
        """Make an update; the tokens are counted here, without waiting for a GPU."""
        tokens = sum(batch.tokens for batch in batches)
        return cls(batches, numbers, tokens, sum(batch.positions for batch in batches))

    def to(self, device: torch.device | str) -> "Update[B]":
        return replace(self, batches=[batch.to(device) for batch in self.batches])


class UpdateLoader(Generic[B]):
    """An endless iterable of updates, for Lightning.

    It is not a DataLoader and has no sampler: Lightning would replace it in a distributed run, and
    lose the token budget. The number of updates done is read at the first batch, since Lightning
    restores it after it makes the loader.
    """

    def __init__(
        self,
        dataset: Dataset[B],
        sequence: BatchSequence,
        *,
        assignment: RankAssignment,
        rank: int,
        done: Callable[[], int],
        workers: int,
        pin_memory: bool,
        gather: Gather = lambda value: [value],
    ) -> None:
        """Load the batches of a sequence, in ``workers`` processes; 0: this process."""
        self.sequence = sequence
        self.dataset = dataset
        self.assignment = assignment
        self._rank = rank
        self._done = done
        self._gather = gather
        self._workers = workers
        self._pin_memory = pin_memory
        self._before: dict[str, Any] | None = None
        # The first batch with this assignment, and the number of updates before it.
        self._first = 0
        self._since = 0
        self._started = False
        self._batches: Iterator[B] | None = None
        sequence.assign(rank, assignment.ranks)

    def __iter__(self) -> Iterator[Update[B]]:
        """Yield the updates that are not done yet; no batch before them is made."""
        self._start()
        numbers = range(self._first + self._rank, 2**63, self.assignment.ranks)
        loader = DataLoader(
            self.dataset,
            sampler=map(self.sequence.__getitem__, count(numbers.start, numbers.step)),
            batch_size=None,
            num_workers=self._workers,
            prefetch_factor=4 if self._workers else None,
            pin_memory=self._pin_memory,
            worker_init_fn=_ignore_sigterm,
        )
        self._batches = iter(loader)
        if self._workers:
            workers: Any = self._batches
            Finalize(self._batches, _kill, [workers._workers], exitpriority=0)
        try:
            for start in count(0, self.assignment.accumulation):
                update = numbers[start : start + self.assignment.accumulation]
                yield Update.of([next(self._batches) for _ in update], list(update))
        finally:
            self.close()

    def close(self) -> None:
        """End the worker processes, which ignore SIGTERM; an exception may refer to the loader."""
        batches = self._batches
        self._batches = None
        if self._workers and batches is not None:
            workers: Any = batches
            workers._shutdown_workers()

    def state_dict(self) -> dict[str, Any]:
        """Return the start of this assignment in the sequence; the trainer counts the updates.

        All ranks must call it: of a stream, the state has the positions of all of them.
        """
        if not self._started:
            self._start()
        return {
            "identity": self.sequence.identity(),
            "row": self.sequence.state_dict(self._next(self._done()), self._gather),
            "epoch_length": self.sequence.epoch_length,
            "ranks": self.assignment.ranks,
            "accumulation": self.assignment.accumulation,
            "first": self._first,
            "since": self._since,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after another loader; logs differences."""
        self._before = state
        if state["row"] is not None:
            self.sequence.load_state_dict(state["row"])
        now = self.assignment
        before = RankAssignment(state["ranks"], state["accumulation"])
        if now != before:
            logger.info(
                f"resuming with {now.ranks} x {now.accumulation} batches an update (ranks x "
                f"accumulation), {before.ranks} x {before.accumulation} before; every pair is "
                "still used once in an epoch"
            )
        old = state["identity"]
        new = self.sequence.identity()
        changed = [name for name in {**new, **old} if new.get(name) != old.get(name)]
        if changed:
            logger.warning(
                "resuming with other batches than before (%s): the rest of this epoch may repeat "
                "some pairs and miss others",
                ", ".join(
                    _CHANGED.get(name, f"{name} {old.get(name)} -> {new.get(name)}")
                    for name in changed
                ),
            )

    def epochs(self, done: int) -> float:
        """Return the number of epochs in ``done`` updates, including resumed runs."""
        if not self._started:
            self._start()
        return self.sequence.epochs(self._next(done))

    def _next(self, done: int) -> int:
        return self._first + (done - self._since) * self.assignment.batches

    def _start(self) -> None:
        self._since = self._done()
        self._started = True
        self._first = next_batch(self._before, self._since, self.sequence, self.assignment)


class EpochLoader(Generic[B]):
    """The validation batches of a rank.

    A rank without batches gets one None: Lightning would skip the validation of an empty loader.
    """

    def __init__(self, dataset: Dataset[B], keys: list[BatchKey], *, pin_memory: bool) -> None:
        self._keys = keys
        self._loader = DataLoader(dataset, sampler=keys, batch_size=None, pin_memory=pin_memory)

    def __len__(self) -> int:
        return max(1, len(self._keys))

    def __iter__(self) -> Iterator[B | None]:
        return iter(self._loader) if self._keys else iter([None])


def _kill(workers: list[BaseProcess]) -> None:
    """Kill the remaining workers at the end of the process, which would wait for them."""
    for worker in workers:
        worker.kill()


def _ignore_sigterm(worker: int) -> None:
    """Let the training process finish its update if a scheduler signals all processes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
