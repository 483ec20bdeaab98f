"""Runs the stages of a recipe one after the other, each in a process of its own.

What a stage has done is the business of its verb, which goes on where it was; what the chain knows
is the manifest.
"""

import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from transformer.errors import InputError, Interrupted
from transformer.recipes.manifest import Manifest
from transformer.recipes.stage import Stage
from transformer.training.run_folder import taken
from transformer.training.stopping import hand_back, listen

Say = Callable[[str], None]
"""Tells the user a line."""

Call = Callable[[Stage], int]
"""Runs a stage; returns its exit code, below 0 the signal that has killed it."""

_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""


class StageFailed(Interrupted):
    """A stage has ended with an error, which it has said; the code is its exit code."""


def run_chain(
    plan: Sequence[Stage],
    manifest: Manifest,
    say: Say,
    call: Call,
    redo_from: str | None = None,
) -> None:
    """Do what is not done yet.

    Args:
        plan: All stages.
        manifest: What has been done of them.
        say: Told what is done before, and what begins.
        call: Runs one.
        redo_from: A stage whose work, and that of all after it, is deleted first.

    Raises:
        InputError: Something has changed since it was made, a file is missing, or another process
            works in the folder.
        Interrupted: A signal has stopped it.
        StageFailed: A stage has.
    """
    folder = manifest.file.parent
    with taken(folder):
        if redo_from is not None:
            manifest.forget(plan, redo_from)
        done = manifest.check(plan)
        refuse_missing(plan)
        for number, stage in enumerate(plan):
            if number < done:
                say(f"{stage.name}: done before")
                continue
            goes_on = number < len(manifest.stages)
            say(f"{stage.name}: {'goes on' if goes_on else 'begins'}: {stage.command}")
            _do(stage, manifest, call)
            say(f"{stage.name}: done in {manifest.stages[-1]['seconds']:.0f} s")


def refuse_missing(plan: Sequence[Stage]) -> None:
    """Refuse to begin what would end for want of a file.

    Raises:
        InputError: A file is missing that no stage makes.
    """
    made: set[Path] = set()
    for stage in plan:
        for file in stage.inputs:
            if file not in made and not file.is_file():
                raise InputError(f"{file}: no such file; {stage.name} reads it")
        made.update(stage.outputs)


def _do(stage: Stage, manifest: Manifest, call: Call) -> None:
    entry = manifest.begin(stage)
    stage.folder.mkdir(exist_ok=True)
    begun, before = time.monotonic(), entry["seconds"]
    try:
        code = call(stage)
    finally:
        entry["seconds"] = round(before + time.monotonic() - begun, 1)
        manifest.write()
    if code:
        if not stage.folder.exists() or not any(stage.folder.iterdir()):
            manifest.withdraw(stage)
        code = 128 - code if code < 0 else code
        mended = "" if code > 128 else "when what it says is mended, "
        raise StageFailed(
            f"{stage.name} has ended with exit code {code}; {mended}the same command goes on with "
            "it",
            code,
        )
    manifest.end(stage)


class Processes:
    """Runs stages as processes, and hands them the signals that this one gets.

    A stage outlives neither a signal nor, on Linux, this process.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._heard: int | None = None

    def __call__(self, stage: Stage) -> int:
        """Run a stage; what it prints goes to stderr.

        Raises:
            Interrupted: A signal has come that the stage before did not obey, being over.
        """
        before = listen(self._hear)
        try:
            if self._heard is not None:
                name = signal.Signals(self._heard).name
                said = f"stopped by {name} before {stage.name}; the same command goes on"
                raise Interrupted(said, 128 + self._heard)
            # In a group of its own Ctrl-C reaches it once, through this process.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "transformer", stage.verb, *stage.arguments],
                stdout=sys.stderr.fileno(),
                process_group=0,
                preexec_fn=_end_with_parent(),
            )
            self._send()
            return self._process.wait()
        finally:
            self._process = None
            hand_back(before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._heard = number
        self._send()

    def _send(self) -> None:
        if self._process is not None and self._heard is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(self._heard)


def _end_with_parent() -> Callable[[], None] | None:
    """What a new process does first, so that it is stopped when this one is killed."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(_DIES_WITH_PARENT, signal.SIGTERM)
