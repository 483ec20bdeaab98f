"""Runs the stages of a recipe as processes; digests in a marker file tell which are done."""

import ctypes
import glob
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from transformer.checkpoint.run_directory import is_locked, locked
from transformer.common.errors import InputError, Interrupted
from transformer.common.files import given_path, remove_parts, written_whole
from transformer.common.processes import handling
from transformer.data.text.lines import file_digest
from transformer.recipes.plan import Plan, Stage
from transformer.reports.scores import read_scores

_RESUMABLE = ("train", "translate", "ask")
"""Commands that resume an interrupted stage; the others start again."""

_PR_SET_PDEATHSIG = 1
"""Option of prctl (linux/prctl.h): the signal that a process gets when its parent ends."""


class RecipeResult(NamedTuple):
    """The checkpoint that a recipe has trained, and its scores by the name of the text."""

    checkpoint: Path
    scores: dict[str, list[dict[str, Any]]]


def run_recipe(plan: Plan, log: Callable[[str], None]) -> RecipeResult:
    """Run or resume the stages; ``log`` gets a line when a stage begins, resumes or is done.

    Raises InputError for a missing input, and Interrupted after a signal or a failed stage.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    run_stages(plan.stages, given_path(plan.data.cache), log)
    training, evaluation = plan.stages[-2:]
    scores = {
        name.partition(".")[0]: rows
        for stage in (evaluation, training)
        for name, rows in read_scores(stage.folder).items()
    }
    return RecipeResult(training.outputs[0], scores)


def run_stages(stages: Sequence[Stage], cache: Path, log: Callable[[str], None]) -> None:
    """Run the stages that are not done; ``cache`` is a folder for the digests of large files."""
    with handling(_stop), locked(stages[0].folder.parent, "works"):
        list(states(stages, cache))  # raises InputError before the first stage runs
        for stage in stages:
            digests = _digests(stage, cache)
            state = _state(stage, digests)
            if state == "done":
                log(f"{stage.name}: done before")
                continue
            log(f"{stage.name}: {'starts' if state == 'new' else state}: {stage.command}")
            if state != "resumes" or stage.verb not in _RESUMABLE:
                _move_aside(stage, log)
            start = time.monotonic()
            _run(stage, digests)
            log(f"{stage.name}: done in {time.monotonic() - start:.0f} s")


def _stop(number: int, frame: FrameType | None = None, when: str = "") -> NoReturn:
    """Raise Interrupted for a signal: the signal handler between two stages."""
    name = signal.Signals(number).name
    raise Interrupted(f"stopped by {name}{when}; the same command resumes", 128 + number)


def states(stages: Sequence[Stage], cache: Path) -> Iterator[str]:
    """Yield the state of each stage before the first one runs; InputError for a missing input."""
    pending: set[Path] = set()
    for stage in stages:
        state = _state(stage, _digests(stage, cache, pending))
        if state == "done" and not pending.isdisjoint(stage.inputs):
            state = "starts again if its inputs change"
        if state != "done":
            pending.update(stage.outputs)
        yield state


def _digests(stage: Stage, cache: Path, pending: Collection[Path] = ()) -> dict[str, str]:
    """The sha256 of the command and of each input, by name; not of inputs that are ``pending``."""
    inputs = [file for file in stage.inputs if file not in pending]
    digests = {stage.label(file): file_digest(file, cache).hex() for file in inputs}
    return {"command": stage.digest, **digests}


def _state(stage: Stage, digests: dict[str, str]) -> str:
    """``new``, ``done``, ``resumes``, or ``starts again, REASON``."""
    marker = stage.marker
    if not marker.exists():
        return "new"
    try:
        values = json.loads(marker.read_text(encoding="utf-8"))
        before = dict(values["sha256"])
        done = values["done"]
    except (OSError, ValueError, LookupError, TypeError):
        return f"starts again, {marker.name} cannot be read"
    changed = [name for name, digest in digests.items() if before.get(name) != digest]
    if changed:
        return f"starts again, {changed[0]} has changed"
    if not done:
        return "resumes"
    missing = [stage.label(file) for file in stage.outputs if not file.is_file()]
    return f"starts again, {missing[0]} is missing" if missing else "done"


def _mark(stage: Stage, digests: dict[str, str], *, done: bool) -> None:
    values = {"command": stage.command, "sha256": digests, "done": done}
    remove_parts(stage.marker.parent, glob.escape(stage.marker.name))
    with written_whole(stage.marker) as part:
        part.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _move_aside(stage: Stage, log: Callable[[str], None]) -> None:
    """Rename the folder of an earlier call to ``NAME.old-N``; InputError if foreign or in use."""
    if not stage.folder.is_dir() or not any(stage.folder.iterdir()):
        return
    foreign = not stage.marker.exists()
    if foreign or is_locked(stage.folder):
        reason = "no recipe has made it" if foreign else "a process still trains in it"
        raise InputError(f"{stage.folder} exists, and {reason}; give another output")
    names = (stage.folder.with_name(f"{stage.name}.old-{number}") for number in count(1))
    aside = next(folder for folder in names if not folder.exists())
    stage.folder.rename(aside)
    log(f"{stage.name}: the folder of the earlier call is kept as {aside}")


def _run(stage: Stage, digests: dict[str, str]) -> None:
    _mark(stage, digests, done=False)
    stage.folder.mkdir(exist_ok=True)
    code, received = call(stage)
    if code:
        # A signal ended the process: -N becomes 128 + N, as in a shell.
        code = 128 - code if code < 0 else code
        raise Interrupted(
            f"{stage.name} has ended with exit code {code}; the same command resumes it, or a "
            "mended one",
            code,
        )
    _mark(stage, digests, done=True)
    if received is not None:
        _stop(received, when=f" after {stage.name}")


def call(stage: Stage) -> tuple[int, int | None]:
    """Run a stage as a process; returns its exit code, and the last signal, which it forwards."""
    received: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if process is not None:
            process.send_signal(number)

    with handling(forward):
        # Ctrl-C goes to all processes of a group. In its own group, the stage gets it only once:
        # from ``forward``.
        process = subprocess.Popen(
            [sys.executable, "-m", "transformer", stage.verb, *stage.arguments],
            stdout=sys.stderr.fileno(),
            process_group=0,
            preexec_fn=stop_with_parent(),
        )
        if received:  # before the process was started
            process.send_signal(received[-1])
        return process.wait(), received[-1] if received else None


def stop_with_parent() -> Callable[[], None] | None:
    """A ``preexec_fn``: the new process gets SIGTERM when this one ends; None if not on Linux."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def watch() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent ended before the call of prctl
            os._exit(128 + signal.SIGTERM)

    return watch
