"""State of a run directory, by the names of its files: finished, locked, with a checkpoint."""

import errno
import fcntl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from transformer.common.errors import InputError
from transformer.common.files import open_unlinked

LOCK = ".lock"
"""Name of the file that a process locks while it trains."""

FINISHED = "finished"
"""Name of an empty file: training and tests of the run are over."""

_PATIENCE = 1.0
"""Seconds to wait for a process that only checks whether another one trains."""


def mark_finished(folder: Path) -> None:
    """Record that training and its tests are over."""
    open_unlinked(folder / FINISHED, "a").close()


def mark_unfinished(folder: Path) -> None:
    """Record that training continues."""
    (folder / FINISHED).unlink(missing_ok=True)


def is_finished(folder: Path) -> bool:
    """Whether training and its tests are over."""
    return (folder / FINISHED).exists()


@contextmanager
def locked(folder: Path, verb: str = "trains") -> Iterator[None]:
    """Lock a folder while this process lives; InputError if another has it, or it fails."""
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(open_unlinked(folder / LOCK, "w"))
            until = time.monotonic() + _PATIENCE
            while not (free := _lock(lock, fcntl.LOCK_EX)) and time.monotonic() <= until:
                time.sleep(_PATIENCE / 20)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(
                f"{folder / LOCK} cannot be locked: {reason}; put the run on another disk"
            ) from error
        if not free:
            raise InputError(
                f"another process {verb} in {folder}; wait, stop it, or take another folder"
            )
        yield


def is_locked(folder: Path) -> bool:
    """Whether another process trains in a run directory; the check takes a shared lock."""
    try:
        with open(folder / LOCK) as lock:
            return not _lock(lock, fcntl.LOCK_SH)
    except OSError as error:
        # If the file system has no locks, `locked` reports it.
        return error.errno not in (errno.ENOENT, errno.ENOLCK)


def _lock(lock: IO[str], how: int) -> bool:
    """Lock a file unless another process holds it; OSError if the file system has no locks."""
    try:
        # Unlike those of flock, children do not inherit it.
        fcntl.lockf(lock, how | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # either one means that the lock is held
        return False
    return True


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return any((folder / "checkpoints" / name).is_file() for name in ("last.ckpt", "previous.ckpt"))
