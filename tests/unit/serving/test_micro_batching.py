"""Batches are chosen by age and length; a job that fails or is dropped hurts no other."""

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from transformer.common.errors import InputError
from transformer.serving.metrics import Metrics
from transformer.serving.micro_batching import Job, MicroBatcher, QueueFull, choose_batch


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


def batcher(model: Model, max_waiting: int = 100) -> MicroBatcher:
    return MicroBatcher(
        model,
        batch_tokens=12,
        max_waiting=max_waiting,
        metrics=Metrics(),
        thread=ThreadPoolExecutor(1),
    )


def job(sentence: str, options: str = "en-de") -> Job:
    return Job(options, sentence, len(sentence))


def test_the_oldest_takes_those_nearest_in_length() -> None:
    waiting = [Job("a", 0, 4), Job("b", 1, 4), Job("a", 2, 9), Job("a", 3, 5), Job("a", 4, 3)]
    assert [one.sentence for one in choose_batch(waiting, 10)] == [0, 3]
    assert [one.sentence for one in choose_batch(waiting, 15)] == [0, 3, 4]
    assert [one.sentence for one in choose_batch(waiting, 1)] == [0]
    assert [one.sentence for one in choose_batch(waiting[1:], 1000)] == [1]
    assert choose_batch([], 10) == []


def test_what_gathers_shares_batches_and_nothing_is_lost() -> None:
    model = Model()
    queue = batcher(model)
    first, *others = jobs = [job(text) for text in ("wait", "aaa", "bbbbbbb", "ccc", "dd")]
    other = job("eee", "de-en")
    queue.submit([first])
    assert model.waits.wait(10)
    queue.submit([*others, other])
    model.released.set()
    queue.close()
    assert [one.result.result(0) for one in jobs] == ["WAIT", "AAA", "BBBBBBB", "CCC", "DD"]
    assert other.result.result(0) == "EEE"
    assert model.batches == [["wait"], ["aaa", "ccc", "dd"], ["bbbbbbb"], ["eee"]]


@pytest.mark.parametrize(("bad", "error"), [("poison", InputError), ("bug", ZeroDivisionError)])
def test_only_the_job_at_fault_fails(bad: str, error: type[Exception]) -> None:
    model = Model()
    queue = batcher(model)
    jobs = [job(text) for text in ("wait", bad, "abc")]
    queue.submit([jobs[0]])
    assert model.waits.wait(10)
    queue.submit(jobs[1:])
    model.released.set()
    queue.close()
    assert jobs[2].result.result(0) == "ABC"
    with pytest.raises(error):
        jobs[1].result.result(0)


def test_cancelled_and_refused_jobs_are_never_translated() -> None:
    model = Model()
    queue = batcher(model, max_waiting=2)
    first, gone, kept = (job(text) for text in ("wait", "gone", "kept"))
    queue.submit([first])
    assert model.waits.wait(10)
    queue.submit([gone, kept])
    with pytest.raises(QueueFull):
        queue.submit([job("more")])
    assert gone.result.cancel()
    last = job("last")
    queue.submit([last])
    model.released.set()
    queue.close()
    assert model.batches == [["wait"], ["kept", "last"]]
    assert last.result.result(0) == "LAST"
    with pytest.raises(CancelledError):
        gone.result.result(0)
