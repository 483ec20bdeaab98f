"""Files as users name them, and as they are written: whole or not at all.

It does not know what is in them.
"""

import errno
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer.errors import InputError


def given_path(name: str | Path) -> Path:
    """A path that the user names, with ``~`` as a shell reads it.

    Raises:
        InputError: There is no such user.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise InputError(f"{name}: there is no such home folder; write the whole path") from error


class NoSpaceLeft(InputError):
    """The disk, or the user's share of it, is full."""


@contextmanager
def named(path: str | Path) -> Iterator[None]:
    """Let what goes wrong with a file say which it was, as reading and writing alone do not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a path to write to (a file or a folder), which becomes ``path`` when all went well.

    It is on the disk then: a power failure leaves nothing of it, or all.

    Raises:
        NoSpaceLeft: there is no room for it; nothing of it stays.
    """
    part = path.with_name(path.name + f".{os.getpid()}.part")
    try:
        yield part
        for file in [*part.rglob("*"), part]:
            sync(file)
        os.replace(part, path)
        sync(path.parent)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            error.filename = error.filename or str(path)
            raise
        reason = os.strerror(error.errno)
        raise NoSpaceLeft(
            f"{path}: cannot be written ({reason}); free some space, or write elsewhere"
        ) from error
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


def remove_parts(path: Path) -> None:
    """Delete what killed processes have left of a file that no other process writes now."""
    for part in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
        part.unlink()


def sync(path: Path) -> None:
    """Let a file, or the names in a folder, survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
