"""A folder of derived files, each of which is there whole or not at all.

Does not know what is in the files. A process killed while it writes leaves a `.part` file of its
own name, which nobody may read; who fills the folder next, under its lock, can delete it.
"""

import errno
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from transformer.errors import InputError

logger = logging.getLogger(__name__)


class NoSpaceLeft(InputError):
    """The disk, or the user's share of it, is full."""


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
            _sync(file)
        os.replace(part, path)
        _sync(path.parent)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
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


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time fill the folder, which is made if need be.

    The processes of a distributed run, and runs side by side, then share one preparation. Who has
    to wait says so in the log. The lock of a killed process is free.

    Raises:
        InputError: the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.info("waiting for another process that is preparing text in %s", folder)
            lock.acquire()
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def remembered(folder: Path, question: str, answer: Callable[[], str]) -> str:
    """Return what was answered to a question before, or else the answer, which is kept.

    Args:
        folder: whose subfolder "answers" keeps it.
        question: names all that the answer depends on.
        answer: finds it out; an empty one is not believed.

    Raises:
        InputError: the folder cannot be written to.
    """
    place = folder / "answers" / hashlib.sha256(question.encode()).hexdigest()[:24]
    if place.is_file() and (known := place.read_text(encoding="utf-8")):
        return known
    found = answer()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(place) as part:
            part.write_text(found, encoding="utf-8")
    except OSError as error:
        raise _unwritable(folder, error) from error
    return found


def _sync(path: Path) -> None:
    """Let a file, or the names in a folder, survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write to the cache {folder} ({error.strerror}); set data.cache=FOLDER"
    )
