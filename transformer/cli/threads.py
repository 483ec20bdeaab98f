"""Threads of torch's products on a CPU: how many there are, and how they wait for each other.

After each product the threads of OpenMP wait for each other. They keep their cores while they wait:
that is fast on an idle machine, and many times slower where another program takes one of the cores.
These are settings of the process, so that only commands call this module.
"""

import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from transformer.checkpoint.checkpoint import Checkpoint

SMALL_WEIGHT = 2**19
"""Elements of a model's largest weight up to which a second thread gains nothing in a search
(docs/performance.md)."""

CROWDED = 0.4
"""Seconds of waiting for a core in each second, summed over all threads, above which waiting
threads sleep."""

FREE = 0.25
"""The same, below which they keep their cores again."""

_INTERVAL = 0.25
_WATCH = "core-watch"
_DEFAULT_THREADS = torch.get_num_threads()
_TASKS = Path("/proc/self/task")


def set_search_threads(weights: Iterable[Tensor]) -> None:
    """Search with one thread if all weights are small; let threads sleep on a crowded machine.

    ``OMP_NUM_THREADS`` sets the number instead.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        largest = max(weight.numel() for weight in weights)
        torch.set_num_threads(1 if largest <= SMALL_WEIGHT else _DEFAULT_THREADS)
    sleep_when_crowded()


def set_threads(checkpoints: Sequence[Checkpoint]) -> None:
    """`set_search_threads` for these models."""
    set_search_threads(
        weight for checkpoint in checkpoints for weight in checkpoint.model.parameters()
    )


def sleep_when_crowded() -> None:
    """Let waiting threads sleep whenever other programs want their cores, from now on.

    The order of the sums stays, and so do all results. ``OMP_WAIT_POLICY`` or ``GOMP_SPINCOUNT``
    set the waiting instead. Nothing happens with one thread, or on a system that does not count
    the seconds in which a thread waits for a core (Linux does).
    """
    decided = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    watched = any(thread.name == _WATCH for thread in threading.enumerate())
    if torch.get_num_threads() > 1 and not decided and not watched and _seconds_without_core():
        ended = threading.Event()  # never: it watches as long as the command runs
        threading.Thread(target=_watch, args=(ended,), name=_WATCH, daemon=True).start()


def _watch(ended: threading.Event) -> None:
    team: _IdleTeam | None = None
    before = _seconds_without_core()
    start = time.monotonic()
    while not ended.wait(_INTERVAL):
        now = _seconds_without_core()
        end = time.monotonic()
        seconds = sum(now[task] - before[task] for task in now.keys() & before.keys())
        waited = seconds / (end - start)
        before = now
        start = end
        if team is None and waited > CROWDED:
            team = _IdleTeam()
        elif team is not None and waited < FREE:
            team.end()
            team = None


class _IdleTeam(threading.Thread):
    """Threads of OpenMP without work.

    With them there are more threads than cores. libgomp then lets waiting threads sleep at once
    (its manual, "GOMP_SPINCOUNT"); its functions offer no other way to change that in a process.
    """

    def __init__(self) -> None:
        super().__init__(name="idle-team", daemon=True)
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        torch.zeros(2**18).add_(1)  # large enough for several threads
        self._ended.wait()

    def end(self) -> None:
        """Threads keep their cores again while they wait."""
        self._ended.set()


def _seconds_without_core() -> dict[str, float]:
    """Seconds in which each thread of this process was ready and had no core; empty if unknown."""
    seconds = {}
    for task in _TASKS.glob("*/schedstat"):
        try:
            seconds[task.parent.name] = int(task.read_text().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):  # a thread that has ended
            continue
    return seconds
