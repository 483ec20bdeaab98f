"""Locks of files among processes and threads: those of flock, which NFS has, too.

filelock is imported where a file is locked: it takes 50 ms, and most commands lock nothing.
"""

import errno
import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def locked(file: Path, held: Callable[[], None], patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a file, which is created, within a block; forked processes do not get it.

    If another process or thread has it for ``patience`` seconds, ``held`` is called, and may raise;
    otherwise the caller waits. Raises OSError if the file cannot be opened, or is a link.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(file, fallback_to_soft=False)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        held()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def lock_open(file: BinaryIO) -> bool:
    """Lock an open file until it is closed; False if another process or thread has the lock."""
    from filelock import lock_descriptor

    return lock_descriptor(file.fileno(), blocking=False)


def is_locked(file: Path) -> bool:
    """Whether any process or thread has the lock, this one too; it need not be a user's own file.

    For a moment, the check takes a shared lock, which other checks do not notice.
    """
    try:
        with open(file, "rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        # If the file system has no locks, `locked` reports it.
        return error.errno not in (errno.ENOENT, errno.ENOLCK, errno.ENOSYS)
    return False
