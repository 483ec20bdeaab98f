"""Counters of the service for Prometheus, without texts, keys and addresses."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = tuple(2.0**power for power in range(15))


class Metrics:
    """The counters of one service, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        self.requests = counter(
            "translate_requests_total", "Requests by route and status", "route", "status"
        )
        self.request_seconds = histogram(
            "translate_request_seconds", "Time to answer a request", _SECONDS, "route"
        )
        self.queue_seconds = histogram(
            "translate_queue_seconds", "Time that a sentence waits for its batch", _SECONDS
        )
        self.batch_sentences = histogram(
            "translate_batch_sentences", "Sentences of a batch", _SIZES
        )
        self.batch_tokens = histogram(
            "translate_batch_tokens", "Source tokens of a batch, without padding", _SIZES
        )
        self.waiting = Gauge("translate_waiting", "Sentences that wait", registry=self.registry)
        self.source_tokens = counter("translate_source_tokens_total", "Source tokens translated")
        self.target_tokens = counter("translate_target_tokens_total", "Target tokens written")
        self.cache_hits = counter(
            "translate_cache_hits_total", "Sentences whose translation was remembered"
        )
