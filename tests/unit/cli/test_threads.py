"""The threads of a search, and how they wait on a machine that other programs use."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from transformer.cli import threads


@pytest.fixture
def two_threads(monkeypatch):
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_DEFAULT_THREADS", 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_small_model_searches_with_one_thread(two_threads, monkeypatch):
    monkeypatch.setattr(threads, "sleep_when_crowded", lambda: None)
    small, large = nn.Linear(128, 1000), nn.Linear(512, 2048)
    threads.set_search_threads(small.parameters())
    assert torch.get_num_threads() == 1
    threads.set_search_threads([*small.parameters(), *large.parameters()])
    assert torch.get_num_threads() == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    threads.set_search_threads(small.parameters())
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="no count of waiting")
def test_threads_sleep_while_the_machine_is_crowded(two_threads, monkeypatch):
    waited, ended = {"1": 0.0}, threading.Event()
    monkeypatch.setattr(threads, "_INTERVAL", 0.01)
    monkeypatch.setattr(threads, "_seconds_without_core", lambda: dict(waited))
    watch = threading.Thread(target=threads._watch, args=(ended,), daemon=True)
    watch.start()
    assert _becomes(False, waited, crowded=False)
    assert _becomes(True, waited, crowded=True)
    assert _becomes(False, waited, crowded=False)
    ended.set()


def _becomes(asleep: bool, waited: dict[str, float], *, crowded: bool) -> bool:
    """Whether there is an idle team, or none, after a while on such a machine."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        waited["1"] += 0.01 if crowded else 0.0
        time.sleep(0.01)
        if asleep == ("idle-team" in {thread.name for thread in threading.enumerate()}):
            return True
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_an_idle_team_has_threads_of_openmp_until_it_ends(two_threads):
    torch.zeros(2**18).add_(1)
    before = _tasks()  # some of an earlier test may be about to end
    team = threads._IdleTeam()
    deadline = time.monotonic() + 20
    while len(_tasks() - before) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    new = _tasks() - before
    assert len(new) == 2  # the thread itself, and one for the second core
    team.end()
    while _tasks() & new and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _tasks() & new


def _tasks() -> set[str]:
    return set(os.listdir("/proc/self/task"))
