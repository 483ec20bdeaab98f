"""Runs stages as processes of their own, and hands them the signals that this one gets.

It does not know what has been done.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from transformer.common.errors import Interrupted
from transformer.recipes.stage import Stage
from transformer.training.callbacks.graceful_shutdown import hand_back, listen

_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""


class Processes:
    """Runs stages, and listens to signals from its ``with`` on, between two stages too.

    A stage outlives neither a signal nor, on Linux, this process.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._heard: int | None = None
        self._calling = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Processes":
        self._before = listen(self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        hand_back(self._before)

    def __call__(self, stage: Stage) -> int:
        """Run a stage; what it prints goes to stderr.

        Raises:
            Interrupted: A signal has come that the stage before did not obey, being over.
        """
        self._calling = True
        try:
            if self._heard is not None:
                raise _stopped(self._heard, f" before {stage.name}")
            # In a group of its own Ctrl-C reaches it once, through this process.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "transformer", stage.verb, *stage.arguments],
                stdout=sys.stderr.fileno(),
                process_group=0,
                preexec_fn=end_with_parent(),
            )
            self._send()
            return self._process.wait()
        finally:
            self._process = None
            self._calling = False

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard = number
        if not self._calling:
            raise _stopped(number, "")
        self._send()

    def _send(self) -> None:
        if self._process is not None and self._heard is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(self._heard)


def _stopped(number: int, where: str) -> Interrupted:
    name = signal.Signals(number).name
    return Interrupted(f"stopped by {name}{where}; the same command goes on", 128 + number)


def end_with_parent() -> Callable[[], None] | None:
    """What a new process does first, so that it is stopped when this one is killed."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def watch() -> None:
        prctl(_DIES_WITH_PARENT, signal.SIGTERM)
        if os.getppid() != parent:
            # It was killed before it could be asked for.
            os._exit(128 + signal.SIGTERM)

    return watch
