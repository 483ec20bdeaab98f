"""Files as users name them, and as they are written: whole or not at all.

It does not know what is in them.
"""

import errno
import glob
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from transformer.common.errors import InputError

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the installed package."""


def given_path(name: str | Path) -> Path:
    """A path that the user names, with ``~`` as a shell reads it.

    Raises:
        InputError: There is no such user.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise InputError(f"{name}: there is no such home folder; write the whole path") from error


def open_unlinked(path: Path, mode: str, **settings: Any) -> IO[Any]:
    """Open a file of a folder that others may write to: a symbolic link there is not followed.

    Args:
        path: The file.
        mode: As of ``open``.
        settings: Likewise.

    Raises:
        OSError: It cannot be opened, or is a link.
    """

    def opened(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o666)

    return open(path, mode, opener=opened, **settings)


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
    # At random: nobody can have put a link there.
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
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
