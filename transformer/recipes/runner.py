"""Runs the stages of a recipe one after the other, each in its own process.

A marker beside the folder of a stage says what it was made of. A stage that is done is skipped
if its command and its inputs are the same; an interrupted one resumes as its verb does by itself.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from transformer.common.errors import InputError, Interrupted
from transformer.common.files import remove_parts, written_whole
from transformer.data.text.lines import file_digest
from transformer.recipes.stage import Stage
from transformer.training.callbacks.graceful_shutdown import listen, restore_handlers
from transformer.training.checkpointing.run_directory import locked

_RESUMABLE = ("train", "translate")
"""Verbs that resume; the others are quick, and start anew."""

_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""


def run_stages(stages: Sequence[Stage], cache: Path, tell: Callable[[str], None]) -> None:
    """Run what is not done yet.

    Args:
        stages: All stages; their folders are in one folder, which exists.
        cache: A folder that remembers the sha256 of large files.
        tell: Prints a line.

    Raises:
        InputError: An input is missing, a folder has another origin, or another process works
            there.
        Interrupted: A signal has stopped it, or a stage has ended with an error.
    """
    with locked(stages[0].folder.parent, "works"):
        list(states(stages, cache))
        for stage in stages:
            made_of = _origin(stage, cache)
            state = _state(stage, made_of)
            if state == "done":
                tell(f"{stage.name}: done before")
                continue
            tell(f"{stage.name}: {'begins' if state == 'new' else state}: {stage.command}")
            if state != "goes on" or stage.verb not in _RESUMABLE:
                _clear(stage)
            began = time.monotonic()
            _run(stage, made_of)
            tell(f"{stage.name}: done in {time.monotonic() - began:.0f} s")


def states(stages: Sequence[Stage], cache: Path) -> Iterator[str]:
    """The state of each stage, as far as it is known before any runs.

    Raises:
        InputError: A file is missing that no earlier stage writes.
    """
    pending: set[Path] = set()
    for stage in stages:
        made_of = _origin(stage, cache, pending)
        state = _state(stage, made_of)
        if state == "done" and not pending.isdisjoint(stage.inputs):
            state = "begins again if its inputs change"
        if state != "done":
            pending.update(stage.outputs)
        yield state


def _origin(stage: Stage, cache: Path, pending: Collection[Path] = ()) -> dict[str, str]:
    """The sha256 of the command and of the inputs, but for those that are not written yet."""
    inputs = [file for file in stage.inputs if file not in pending]
    digests = {stage.label(file): file_digest(file, cache).hex() for file in inputs}
    return {"command": stage.digest, **digests}


def _marker(stage: Stage) -> Path:
    return stage.folder.with_name(f"{stage.name}.json")


def _state(stage: Stage, made_of: dict[str, str]) -> str:
    """``new``, ``done``, ``goes on``, or why the stage begins again."""
    if not _marker(stage).exists():
        return "new"
    try:
        marker = json.loads(_marker(stage).read_text(encoding="utf-8"))
        before, done = dict(marker["sha256"]), marker["done"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{_marker(stage)} cannot be read ({error}); delete it, and {stage.folder}"
        ) from error
    changed = [name for name, digest in made_of.items() if before.get(name) != digest]
    if changed:
        return f"begins again, {changed[0]} has changed"
    if not done:
        return "goes on"
    missing = [stage.label(file) for file in stage.outputs if not file.is_file()]
    return f"begins again, {missing[0]} is missing" if missing else "done"


def _mark(stage: Stage, made_of: dict[str, str], *, done: bool) -> None:
    marker = {"command": stage.command, "sha256": made_of, "done": done}
    remove_parts(_marker(stage))
    with written_whole(_marker(stage)) as part:
        part.write_text(json.dumps(marker, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _clear(stage: Stage) -> None:
    """Delete what the stage has written.

    Raises:
        InputError: The folder exists, and no recipe has made it.
    """
    if not stage.folder.exists():
        return
    if not _marker(stage).exists():
        raise InputError(
            f"{stage.folder} is there, and {_marker(stage).name} is not, which says what made it; "
            "delete the folder, or give another output="
        )
    # No command may resume in a folder that is half deleted, if this process is killed now.
    _mark(stage, {}, done=False)
    shutil.rmtree(stage.folder)


def _run(stage: Stage, made_of: dict[str, str]) -> None:
    """Run a stage, and mark when it begins and when it is done.

    Raises:
        Interrupted: It has ended with an error, or a signal has come.
    """
    _mark(stage, made_of, done=False)
    stage.folder.mkdir(exist_ok=True)
    code, heard = call(stage)
    if code:
        code = 128 - code if code < 0 else code
        raise Interrupted(
            f"{stage.name} has ended with exit code {code}; the same command goes on with it", code
        )
    _mark(stage, made_of, done=True)
    if heard is not None:
        name = signal.Signals(heard).name
        raise Interrupted(
            f"stopped by {name} after {stage.name}; the same command goes on", 128 + heard
        )


def call(stage: Stage) -> tuple[int, int | None]:
    """Run a stage as a process; it gets the signals that this process gets, and ends with it.

    What it prints goes to stderr.

    Returns:
        Its exit code, negative if a signal has killed it; and the last signal that has come.
    """
    heard: list[int] = []
    process: Any = None

    def hand_on(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if process is not None:
            process.send_signal(number)

    previous = listen(hand_on)
    try:
        # In a group of its own Ctrl-C reaches it once, through this process.
        process = subprocess.Popen(
            [sys.executable, "-m", "transformer", stage.verb, *stage.arguments],
            stdout=sys.stderr.fileno(),
            process_group=0,
            preexec_fn=end_with_parent(),
        )
        if heard:
            process.send_signal(heard[-1])
        return process.wait(), heard[-1] if heard else None
    finally:
        restore_handlers(previous)


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
