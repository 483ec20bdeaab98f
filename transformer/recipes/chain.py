"""Runs the stages of a recipe one after the other.

What a stage has done is the business of its verb, which goes on where it was; what the chain knows
is the manifest.
"""

import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from transformer.common.errors import InputError, Interrupted
from transformer.recipes.digests import Say
from transformer.recipes.manifest import Manifest
from transformer.recipes.stage import Stage
from transformer.training.checkpointing.run_directory import taken

Call = Callable[[Stage], int]
"""Runs a stage; returns its exit code, below 0 the signal that has killed it."""

_PART = re.compile(r".*\.\d+\.part")
"""What a killed process leaves that would have renamed its file when it was whole."""

_WRITES_WHOLE = ("text", "translate", "select")
"""Verbs whose outputs are there only when they are finished."""


_SIGNALS = 128
"""Exit codes from here on are of processes that a signal has ended."""


class StageFailed(Interrupted):
    """A stage has ended with an error, which it has said; the code is its exit code."""


def run_chain(
    plan: Sequence[Stage],
    read: Callable[[], Manifest],
    say: Say,
    call: Call,
    redo_from: str | None = None,
) -> Manifest:
    """Do what is not done yet.

    Args:
        plan: All stages, of one folder, which is there.
        read: Reads what has been done of them, when no other process works in the folder.
        say: Told what is done before, and what begins.
        call: Runs one.
        redo_from: A stage whose work, and that of all after it, is deleted once nothing is left
            that could be refused. Until all is done the same call goes on, and deletes no more.

    Returns:
        What has been done.

    Raises:
        InputError: Something has changed since it was made, a file is missing, or another process
            works in the folder.
        Interrupted: A signal has stopped it.
        StageFailed: A stage has.
    """
    with taken(plan[0].folder.parent, "works"):
        manifest = read()
        done = _ready(manifest, plan, say, redo_from)
        for number, stage in enumerate(plan):
            if number < done:
                say(f"{stage.name}: done before")
                continue
            goes_on = number < len(manifest.stages)
            say(f"{stage.name}: {'goes on' if goes_on else 'begins'}: {stage.command}")
            _do(stage, manifest, call)
            say(f"{stage.name}: done in {manifest.stages[-1]['seconds']:.0f} s")
        manifest.all_done()
        return manifest


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


def _ready(manifest: Manifest, plan: Sequence[Stage], say: Say, redo_from: str | None) -> int:
    """See that nothing is left to refuse, then delete; returns how many stages are done."""
    manifest.sweep()
    begun_again = None if redo_from is None else manifest.place(plan, redo_from)
    if redo_from is not None and _goes_on(manifest, plan, redo_from):
        say(f"redo_from={redo_from}: goes on with what this has begun")
        begun_again = None
    done = manifest.check(plan, begun_again)
    refuse_missing(plan)
    if redo_from is not None and begun_again is not None:
        manifest.forget(begun_again, redo_from)
    if line := manifest.other_code():
        say(line)
    return done


def _goes_on(manifest: Manifest, plan: Sequence[Stage], redo_from: str) -> bool:
    """Whether what is to be done again is that already, of what is asked for now."""
    if manifest.redo_from != redo_from:
        return False
    try:
        manifest.check(plan)
    except InputError:
        return False
    return True


def _do(stage: Stage, manifest: Manifest, call: Call) -> None:
    entry = manifest.begin(stage)
    stage.folder.mkdir(exist_ok=True)
    _sweep(stage)
    begun, before = time.monotonic(), entry["seconds"]
    code = 0
    try:
        if not _is_whole(stage):
            manifest.goes_on_now()
            code = call(stage)
    finally:
        entry["seconds"] = round(before + time.monotonic() - begun, 1)
        manifest.write()
    if code:
        if stage.verb == "text" and 0 < code < _SIGNALS:
            # It is quickly made again, of text that the user mends.
            shutil.rmtree(stage.folder)
        begun_to_write = stage.folder.exists() and any(stage.folder.iterdir())
        if not begun_to_write:
            manifest.withdraw(stage)
        code = _SIGNALS - code if code < 0 else code
        mended = "" if code > _SIGNALS else "when what it says is mended, "
        anew = f"; with other settings it begins anew: redo_from={stage.name}"
        raise StageFailed(
            f"{stage.name} has ended with exit code {code}; {mended}the same command goes on with "
            f"it{anew if mended and begun_to_write else ''}",
            code,
        )
    manifest.end(stage)


def _is_whole(stage: Stage) -> bool:
    """Whether the stage was killed after its last file had been renamed to its name."""
    return stage.verb in _WRITES_WHOLE and all(file.exists() for file in stage.outputs)


def _sweep(stage: Stage) -> None:
    """Delete what the stage was writing when it was killed, and writes anew."""
    if stage.verb in ("text", "select"):
        for file in stage.folder.iterdir():
            if _PART.fullmatch(file.name):
                file.unlink()
