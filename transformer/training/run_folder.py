"""Run directories: which are finished, and with which of them a call goes on by itself.

It tells files by their names, and whether two are the same; it does not know what is in them.
"""

import fcntl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from transformer.common.errors import InputError
from transformer.common.files import open_unlinked
from transformer.training.fixed_keys import fixed_key_that_differs

LOCK = ".lock"
"""Name of the file that a process holds while it trains."""

FINISHED = "finished"
"""Name of the empty file that says that training and its tests are over."""

_FREE = ("checkpoint",)
"""Keys of a config that may differ between two calls for the same run."""

_PATIENCE = 1.0
"""Seconds to wait for those who only look whether a process trains."""


@dataclass(frozen=True)
class RunFolder:
    """What is to be known of a run directory.

    Attributes:
        path: Where it is.
        config: The plain values of its ``config.yaml``; None if there is none.
        has_checkpoint: Whether there is one to go on from.
        finished: Whether training and its tests are over.
        taken: Whether a process is training in it.
        changed: When its checkpoint was written, in seconds of some clock.
    """

    path: Path
    config: Mapping[str, Any] | None
    has_checkpoint: bool
    finished: bool
    taken: bool = False
    changed: float = 0.0


def mark_finished(folder: Path) -> None:
    """Note that training and its tests are over."""
    open_unlinked(folder / FINISHED, "a").close()


def mark_unfinished(folder: Path) -> None:
    """Note that there is more to train."""
    (folder / FINISHED).unlink(missing_ok=True)


def is_finished(folder: Path) -> bool:
    """Whether training and its tests are over."""
    return (folder / FINISHED).exists()


@contextmanager
def taken(folder: Path, does: str = "trains") -> Iterator[None]:
    """Keep other processes from working in a folder.

    The system lets go of it when the process ends, however it does.

    Args:
        folder: Of a run, say.
        does: What the other process does there, for the user.

    Raises:
        InputError: Another process does, or the file cannot be locked.
    """
    with _opened(folder / LOCK) as lock:
        until = time.monotonic() + _PATIENCE
        while not _locked(lock, fcntl.LOCK_EX):
            if time.monotonic() > until:
                raise InputError(
                    f"another process {does} in {folder}; wait, stop it, or take another folder"
                )
            time.sleep(_PATIENCE / 20)
        yield


def is_taken(folder: Path) -> bool:
    """Whether another process is training in a run directory.

    Those who ask do not see each other: their lock is a shared one.
    """
    try:
        with open(folder / LOCK) as lock:
            return not _locked(lock, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except InputError:
        return False  # Nothing can hold what cannot be locked; `taken` tells the user.
    except OSError:
        return True


def _opened(file: Path) -> IO[str]:
    try:
        return open_unlinked(file, "w")
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror or error}") from error


def _locked(lock: IO[str], how: int) -> bool:
    """Whether no other process holds the file; unlike flock, it is not handed down to children.

    Raises:
        InputError: The file system has no locks, or no more.
    """
    try:
        fcntl.lockf(lock, how | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # a system may say either of a lock that is held
        return False
    except OSError as error:
        raise InputError(
            f"{lock.name} cannot be locked: {error.strerror or error}; put the run on another disk"
        ) from error
    return True


def has_checkpoint(folder: Path) -> bool:
    """Whether there is one that training can go on from."""
    return any((folder / "checkpoints" / name).is_file() for name in ("last.ckpt", "previous.ckpt"))


def refuse_another_run(folder: Path) -> None:
    """Keep a new run out of the directory of another, whose checkpoints it would replace.

    Raises:
        InputError: There is a checkpoint.
    """
    if any((folder / "checkpoints").glob("*.ckpt")):
        raise InputError(
            f"{folder} holds a run: go on with checkpoint={folder} or checkpoint=auto, or begin "
            "another with hydra.run.dir=FOLDER"
        )


def run_to_go_on_with(
    config: Mapping[str, Any], given: RunFolder | None, others: Sequence[RunFolder]
) -> tuple[Path | None, str]:
    """Decide for ``checkpoint=auto``: every process that sees the same decides alike.

    Args:
        config: The plain values of the call.
        given: The run directory that the call names, if it does.
        others: Those of the same experiment, if it names none.

    Returns:
        The run directory to go on with, None to begin a new run; and why, for the log.

    Raises:
        InputError: The directory that is named holds another run.
    """
    if given is not None:
        if not given.has_checkpoint:
            return None, f"{given.path} holds no checkpoint yet: a new run begins there"
        _refuse_another_run(config, given)
        return given.path, f"going on with {given.path}"
    alike = [
        run
        for run in others
        if run.has_checkpoint and not (run.finished or run.taken) and _same(run.config, config)
    ]
    if not alike:
        return None, "no unfinished run has this config: a new one begins"
    newest = max(alike, key=lambda run: (run.changed, run.path))
    return newest.path, f"going on with {newest.path}, the newest unfinished run of this config"


def _same(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    if one is None:
        return False
    return {k: v for k, v in one.items() if k not in _FREE} == {
        k: v for k, v in other.items() if k not in _FREE
    }


def _refuse_another_run(config: Mapping[str, Any], given: RunFolder) -> None:
    before = given.config or {}
    if key := fixed_key_that_differs(before, config):
        raise InputError(
            f"{given.path} holds a run with another {key}; give another hydra.run.dir, or the "
            f"same {key}"
        )


def changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two configs, a line a key, keys dotted."""
    lines = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += changes(old, new, f"{prefix}{key}.")
        elif old != new and key not in _FREE:
            lines.append(f"{prefix}{key}: {old} before, {new} now")
    return lines
