"""Batches of the sentences of all clients, translated in the thread of the models.

It knows nothing of text: a job has options, a sentence and a length.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from transformer.common.errors import InputError

log = logging.getLogger(__name__)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = tuple(2.0**power for power in range(15))


class Metrics:
    """Counters of one service for Prometheus, without texts, keys and addresses."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        shared: dict[str, Any] = {"namespace": "translate", "registry": self.registry}
        seconds: Callable[..., Histogram] = partial(Histogram, buckets=_SECONDS, **shared)
        sizes: Callable[..., Histogram] = partial(Histogram, buckets=_SIZES, **shared)
        count: Callable[..., Counter] = partial(Counter, **shared)
        self.requests = count("requests_total", "Requests by route and status", ("route", "status"))
        self.request_seconds = seconds("request_seconds", "Time to answer a request", ("route",))
        self.queue_seconds = seconds("queue_seconds", "Time that a sentence waits for its batch")
        self.batch_sentences = sizes("batch_sentences", "Sentences of a batch")
        self.batch_tokens = sizes("batch_tokens", "Source tokens of a batch, without padding")
        self.waiting = Gauge("waiting", "Sentences that wait", **shared)
        self.source_tokens = count("source_tokens_total", "Source tokens translated")
        self.target_tokens = count("target_tokens_total", "Target tokens written")
        self.failures = count("failures_total", "Sentences by the flags of their output", ("flag",))
        self.cache_hits = count("cache_hits_total", "Sentences whose translation was remembered")


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
        self._batch_tokens = batch_tokens
        self._max_waiting = max_waiting
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
        while True:
            batch = self._next_batch()
            if not batch:
                return
            for job in batch:
                self._metrics.queue_seconds.observe(monotonic() - job.since)
            self._run(batch)

    def _next_batch(self) -> list[Job]:
        """Wait for jobs and return the next batch; an empty one after ``close``."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                batch = choose_batch(self._waiting, self._batch_tokens)
                batch_ids = set(map(id, batch))
                self._waiting = [job for job in self._waiting if id(job) not in batch_ids]
                self._metrics.waiting.set(len(self._waiting))
                # Drop canceled jobs: the client has gone, or its time is over.
                batch = [job for job in batch if job.result.set_running_or_notify_cancel()]
                if batch or (not self._waiting and self._closed):
                    return batch

    def _run(self, batch: Sequence[Job]) -> None:
        """Translate a batch; if it fails, its halves, so that only the bad job fails."""
        try:
            translations = self._translate(batch[0].options, [job.sentence for job in batch])
            self._metrics.batch_sentences.observe(len(batch))
            self._metrics.batch_tokens.observe(sum(job.length for job in batch))
            for job, translation in zip(batch, translations, strict=True):
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
    same_options = [job for job in waiting if job.options == waiting[0].options]
    for job in sorted(same_options, key=lambda job: abs(job.length - waiting[0].length)):
        longest = max(longest, job.length)
        if batch and longest * (len(batch) + 1) > batch_tokens:
            break
        batch.append(job)
    return batch
