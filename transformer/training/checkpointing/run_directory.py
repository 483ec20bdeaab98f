"""Run directories: which are finished, and which a process trains in.

Knows files by their names; does not know what is in them.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from transformer.common.errors import InputError
from transformer.common.files import open_unlinked

LOCK = ".lock"
"""Name of the file that a process holds while it trains."""

FINISHED = "finished"
"""Name of the empty file that says that training and its tests are over."""


_PATIENCE = 1.0
"""Seconds to wait for those who only look whether a process trains."""


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
