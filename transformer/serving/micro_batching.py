"""Translates the sentences of all clients in shared batches, in the thread of the models."""

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from transformer.common.errors import InputError
from transformer.serving.metrics import Metrics

log = logging.getLogger(__name__)


class QueueFull(Exception):
    """Too many sentences wait."""


@dataclass(frozen=True)
class Job:
    """A sentence of ``length`` tokens to translate; equal ``options`` may share a batch."""

    options: Hashable
    sentence: Any
    length: int
    result: "Future[Any]" = field(default_factory=Future)
    since: float = field(default_factory=monotonic)


class MicroBatcher:
    """A queue of jobs, and a thread that takes batches from it.

    ``translate`` gets the options and sentences of a batch. ``thread`` is the one that loaded the
    models: OpenMP has threads for each thread that computes.
    """

    def __init__(
        self,
        translate: Callable[[Any, Sequence[Any]], Sequence[Any]],
        *,
        batch_tokens: int,
        max_waiting: int,
        metrics: Metrics,
        thread: Executor,
    ) -> None:
        self._translate = translate
        self._batch_tokens, self._max_waiting = batch_tokens, max_waiting
        self._metrics = metrics
        self._waiting: list[Job] = []
        self._changed = threading.Condition()
        self._closed = False
        self._working = thread.submit(self._work)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue all sentences of a request; raises QueueFull if too many wait."""
        with self._changed:
            if len(self._waiting) + len(jobs) > self._max_waiting:
                self._waiting = [job for job in self._waiting if not job.result.cancelled()]
            if self._closed or len(self._waiting) + len(jobs) > self._max_waiting:
                raise QueueFull
            self._waiting += jobs
            self._metrics.waiting.set(len(self._waiting))
            self._changed.notify()

    @property
    def works(self) -> bool:
        return not self._working.done()

    def close(self, seconds: float | None = None) -> None:
        """Translate the waiting jobs, then end the thread; wait at most so many seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        wait([self._working], seconds)

    def _work(self) -> None:
        while batch := self._next_batch():
            for job in batch:
                self._metrics.queue_seconds.observe(monotonic() - job.since)
            self._run(batch)

    def _next_batch(self) -> list[Job]:
        """Wait for jobs and return the next batch; an empty one after ``close``."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                batch = choose_batch(self._waiting, self._batch_tokens)
                taken = set(map(id, batch))
                self._waiting = [job for job in self._waiting if id(job) not in taken]
                self._metrics.waiting.set(len(self._waiting))
                # Drop canceled jobs: the client has gone, or its time is over.
                batch = [job for job in batch if job.result.set_running_or_notify_cancel()]
                if batch or (not self._waiting and self._closed):
                    return batch

    def _run(self, batch: Sequence[Job]) -> None:
        """Translate a batch; if it fails, its halves, so that only the bad job fails."""
        try:
            found = self._translate(batch[0].options, [job.sentence for job in batch])
            self._metrics.batch_sentences.observe(len(batch))
            self._metrics.batch_tokens.observe(sum(job.length for job in batch))
            for job, translation in zip(batch, found, strict=True):
                job.result.set_result(translation)
        except Exception as error:
            if len(batch) > 1:
                log.warning("a batch of %d sentences failed; its halves are tried", len(batch))
                middle = len(batch) // 2
                self._run(batch[:middle])
                self._run(batch[middle:])
                return
            if not isinstance(error, InputError):
                log.exception("a sentence cannot be translated")
            batch[0].result.set_exception(error)


def choose_batch(waiting: Sequence[Job], batch_tokens: int) -> list[Job]:
    """The first, oldest job and the jobs with its options that are nearest to it in length."""
    batch: list[Job] = []
    longest = 0
    alike = [job for job in waiting if job.options == waiting[0].options]
    for job in sorted(alike, key=lambda job: abs(job.length - waiting[0].length)):
        longest = max(longest, job.length)
        if batch and longest * (len(batch) + 1) > batch_tokens:
            break
        batch.append(job)
    return batch
