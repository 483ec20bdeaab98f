"""Sentences of all clients in shared batches, translated by the one thread that owns the models.

It does not know HTTP, texts of several sentences, or what a translation is. When the thread is
idle, a job starts at once; while it works, jobs gather for the next batch.
"""

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
    """So many sentences wait that no more are accepted for now."""


@dataclass(frozen=True)
class Job:
    """A sentence to translate.

    Attributes:
        options: Jobs of equal options may share a batch.
        length: Tokens of the source.
        result: Its translation, or why there is none; if cancelled, the job is dropped.
        since: When it was accepted, in seconds.
    """

    options: Hashable
    sentence: Any
    length: int
    result: "Future[Any]" = field(default_factory=Future)
    since: float = field(default_factory=monotonic)


class MicroBatcher:
    """A queue of jobs, and a thread that takes batches from it.

    Args:
        translate: From options and the sentences of a batch to their translations.
        batch_tokens: Maximal padded source tokens of a batch; a longer sentence makes one alone.
        max_waiting: Most jobs in the queue; a request that does not fit is refused.
        thread: Of the models: where they were loaded. Had another thread computed as well, OpenMP
            would have more threads than cores, and each step would take twice as long.
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
        """Queue the sentences of a request, all of them; raises QueueFull if too many wait."""
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
        """Whether the thread is there."""
        return not self._working.done()

    def close(self, seconds: float | None = None) -> None:
        """Translate what waits, then end the thread; wait for it no longer than that."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        wait([self._working], seconds)

    def _work(self) -> None:
        while batch := self._next_batch():
            now = monotonic()
            for job in batch:
                self._metrics.queue_seconds.observe(now - job.since)
            self._run(batch)

    def _next_batch(self) -> list[Job]:
        """Wait for jobs; the oldest and those nearest to it in length, or none after the end."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                batch = choose_batch(self._waiting, self._batch_tokens)
                taken = set(map(id, batch))
                self._waiting = [job for job in self._waiting if id(job) not in taken]
                self._metrics.waiting.set(len(self._waiting))
                # A cancelled job is of a client that has gone, or has waited too long.
                batch = [job for job in batch if job.result.set_running_or_notify_cancel()]
                if batch or (not self._waiting and self._closed):
                    return batch

    def _run(self, batch: Sequence[Job]) -> None:
        """Translate a batch; if that fails, its halves, so that only the job at fault fails."""
        try:
            self._translate_batch(batch)
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

    def _translate_batch(self, batch: Sequence[Job]) -> None:
        found = self._translate(batch[0].options, [job.sentence for job in batch])
        translated = list(zip(batch, found, strict=True))
        self._metrics.batch_sentences.observe(len(batch))
        self._metrics.batch_tokens.observe(sum(job.length for job in batch))
        for job, translation in translated:
            job.result.set_result(translation)


def choose_batch(waiting: Sequence[Job], batch_tokens: int) -> list[Job]:
    """The oldest job and, of those with its options, the nearest in length that fit beside it.

    The oldest is first in the sequence; the budget counts padded source tokens.
    """
    if not waiting:
        return []
    oldest = waiting[0]
    alike = [job for job in waiting if job.options == oldest.options]
    batch: list[Job] = []
    longest = 0
    for job in sorted(alike, key=lambda job: abs(job.length - oldest.length)):
        longest = max(longest, job.length)
        if batch and longest * (len(batch) + 1) > batch_tokens:
            break
        batch.append(job)
    return batch
