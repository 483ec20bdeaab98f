"""Counters of the service for Prometheus, without texts, keys and addresses."""

from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = tuple(2.0**power for power in range(15))


class Metrics:
    """The counters of one service, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "translate", "registry": self.registry}
        seconds: Callable[..., Histogram] = partial(Histogram, buckets=_SECONDS, **own)
        sizes: Callable[..., Histogram] = partial(Histogram, buckets=_SIZES, **own)
        count: Callable[..., Counter] = partial(Counter, **own)
        self.requests = count("requests_total", "Requests by route and status", ("route", "status"))
        self.request_seconds = seconds("request_seconds", "Time to answer a request", ("route",))
        self.queue_seconds = seconds("queue_seconds", "Time that a sentence waits for its batch")
        self.batch_sentences = sizes("batch_sentences", "Sentences of a batch")
        self.batch_tokens = sizes("batch_tokens", "Source tokens of a batch, without padding")
        self.waiting = Gauge("waiting", "Sentences that wait", **own)
        self.source_tokens = count("source_tokens_total", "Source tokens translated")
        self.target_tokens = count("target_tokens_total", "Target tokens written")
        self.failures = count("failures_total", "Sentences by the flags of their output", ("flag",))
        self.cache_hits = count("cache_hits_total", "Sentences whose translation was remembered")
