"""State of a run directory, by the names of its files: finished, locked, with a checkpoint."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from transformer.common.errors import InputError
from transformer.common.files import is_file_locked, locked_file, open_unlinked

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
    """Lock a folder within a block; InputError if another has it, or it cannot be locked."""

    def refuse() -> NoReturn:
        raise InputError(
            f"another process {verb} in {folder}; wait, stop it, or take another folder"
        )

    with ExitStack() as stack:
        try:
            stack.enter_context(locked_file(folder / LOCK, refuse, _PATIENCE))
        except OSError as error:
            reason = error.strerror or error
            raise InputError(
                f"{folder / LOCK} cannot be locked: {reason}; put the run on another disk"
            ) from error
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process, perhaps this one, trains in a run directory."""
    return is_file_locked(folder / LOCK)


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return any((folder / "checkpoints" / name).is_file() for name in ("last.ckpt", "previous.ckpt"))
