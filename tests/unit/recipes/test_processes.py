"""Stages as processes, and the signals that they are handed."""

import os
import signal
import threading
from pathlib import Path

import pytest

from transformer.common.errors import Interrupted
from transformer.recipes.processes import Processes
from transformer.recipes.stage import Stage


def test_a_signal_reaches_the_stage_and_no_other_begins(tmp_path: Path) -> None:
    """A stage that waits for ever: what it reads is a pipe that nobody writes to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arguments = (f"nbest={pipe}", f"reference={pipe}", f"output={tmp_path}/o")
    stage = Stage("01_select", "select", arguments, {}, (), (), tmp_path)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM))
    with Processes() as processes:
        timer.start()
        assert processes(stage) == -signal.SIGTERM
        timer.join()
        with pytest.raises(Interrupted, match="stopped by SIGTERM before 01_select") as stopped:
            processes(stage)
    assert stopped.value.code == 143


def test_a_signal_between_two_stages_is_heard() -> None:
    with pytest.raises(Interrupted, match="stopped by SIGUSR1; the same") as stopped, Processes():
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(100):
            pass
    assert stopped.value.code == 138
