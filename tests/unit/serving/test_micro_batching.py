"""Batches are chosen by age and length; a job that fails or is dropped hurts no other."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from transformer.common.errors import InputError
from transformer.serving.micro_batching import Job, Metrics, MicroBatcher, QueueFull, choose_batch


class Model:
    """Upper-cases sentences; waits at the sentence ``wait`` until it is released."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.waits, self.released = threading.Event(), threading.Event()

    def __call__(self, options: str, sentences: Sequence[str]) -> list[str]:
        self.batches.append(list(sentences))
        if "wait" in sentences:
            self.waits.set()
            assert self.released.wait(10)
        if "poison" in sentences:
            raise InputError("poison")
        if "bug" in sentences:
            raise ZeroDivisionError
        return [sentence.upper() for sentence in sentences]


@contextmanager
def busy(max_waiting: int = 100) -> Iterator[tuple[Model, MicroBatcher]]:
    """A queue whose model waits; after the block it goes on, and all jobs are done."""
    model, thread = Model(), ThreadPoolExecutor(1)
    sizes = {"batch_tokens": 12, "max_waiting": max_waiting}
    queue = MicroBatcher(model, **sizes, metrics=Metrics(), thread=thread)
    queue.submit([job("wait")])
    assert model.waits.wait(10)
    yield model, queue
    model.released.set()
    queue.close()


def job(sentence: str, options: str = "en-de") -> Job:
    return Job(options, sentence, len(sentence))


def test_the_oldest_takes_those_nearest_in_length() -> None:
    waiting = [Job("a", 0, 4), Job("b", 1, 4), Job("a", 2, 9), Job("a", 3, 5), Job("a", 4, 3)]
    assert [job.sentence for job in choose_batch(waiting, 10)] == [0, 3]
    assert [job.sentence for job in choose_batch(waiting, 15)] == [0, 3, 4]
    assert [job.sentence for job in choose_batch(waiting, 1)] == [0]
    assert choose_batch([], 10) == []


def test_what_gathers_shares_batches_and_nothing_is_lost() -> None:
    jobs = [job(text) for text in ("aaa", "bbbbbbb", "ccc", "dd")] + [job("eee", "de-en")]
    with busy() as (model, queue):
        queue.submit(jobs)
    assert [job.result.result(0) for job in jobs] == ["AAA", "BBBBBBB", "CCC", "DD", "EEE"]
    assert model.batches == [["wait"], ["aaa", "ccc", "dd"], ["bbbbbbb"], ["eee"]]


def test_only_the_job_at_fault_fails() -> None:
    jobs = [job("poison"), job("abc"), job("bug")]
    with busy() as (_, queue):
        queue.submit(jobs)
    assert jobs[1].result.result(0) == "ABC"
    for failed, error in ((jobs[0], InputError), (jobs[2], ZeroDivisionError)):
        with pytest.raises(error):
            failed.result.result(0)


def test_cancelled_and_refused_jobs_are_never_translated() -> None:
    gone, kept, last = (job(text) for text in ("gone", "kept", "last"))
    with busy(max_waiting=2) as (model, queue):
        queue.submit([gone, kept])
        with pytest.raises(QueueFull):
            queue.submit([job("more")])
        assert gone.result.cancel()
        queue.submit([last])
    assert model.batches == [["wait"], ["kept", "last"]]
    assert last.result.result(0) == "LAST"
    with pytest.raises(CancelledError):
        gone.result.result(0)
