"""Paths of users, atomic writes, locks, and folders of derived files."""

import errno
import fcntl
import glob
import hashlib
import json
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from transformer.common.errors import InputError

logger = logging.getLogger(__name__)

CONFIG_DIR = "TRANSFORMER_CONFIG_DIR"
"""Environment variable: the folder of the user's own choices of groups."""

PACKAGE = Path(__file__).resolve().parents[1]


def given_path(name: str | Path) -> Path:
    """Expand ``~`` in a path of the user."""
    return Path(os.path.expanduser(name))


HUB = "hf://"


def check_output_path(output: Path, inputs: Iterable[Path]) -> None:
    """Check that no file is written that is read, by that name or another."""
    if output.resolve() in {path.resolve() for path in inputs}:
        raise InputError(f"output={output} is an input too; it would be lost: give another one")


def require_writable(folder: Path) -> None:
    """Make a folder, and try to write into it; an OSError if that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def require_new(output: Path) -> None:
    """Raise InputError if a file or folder exists; make sure that it can be written.

    No folder is made: nothing may be left of a call that is refused later.
    """
    if output.exists():
        raise InputError(f"{output} exists; remove it, or choose another with output=")
    require_writable(next(folder for folder in output.parents if folder.exists()))


def open_unlinked(path: Path, mode: str, **settings: Any) -> IO[Any]:
    """Open a file in a folder that other users may write to; an OSError if it is a link."""
    return open(path, mode, opener=lambda p, f: os.open(p, f | os.O_NOFOLLOW, 0o666), **settings)


def read_json(path: Path) -> Any:
    """The values of a file that may be missing or damaged: then None."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class NoSpaceLeft(InputError):
    """The disk, or the user's quota, is full."""


@contextmanager
def named(path: str | Path) -> Iterator[None]:
    """Add the file name to an OSError of reading or writing."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write a file or folder to, which becomes ``path`` if there is no error.

    It is synced: a power failure leaves all of it, or nothing. Raises NoSpaceLeft for a full disk.
    """
    # A random name: nobody can have put a link there.
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield part
        for file in [*part.rglob("*"), part]:
            sync(file)
        os.replace(part, path)
        sync(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = f"cannot be written ({error.strerror}); free some space, or write elsewhere"
            raise NoSpaceLeft(f"{path}: {advice}") from error
        raise
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes ``path`` if there is no error, as `written_whole`.

    After an error, the folders above it that this call made are removed, too. What killed processes
    left of the same folder is removed first.
    """
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _remove_abandoned(path)
        with written_whole(path) as part:
            part.mkdir()
            with _held(part):
                yield part
    except BaseException:
        with suppress(OSError):  # another process may have written there
            for folder in made:
                folder.rmdir()
        raise


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock a folder, where the file system can, until the process ends or is killed."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _remove_abandoned(path: Path) -> None:
    """Remove parts of a folder that no process holds."""
    for part in path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 32}.part"):
        with suppress(OSError):
            handle = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(part)
            finally:
                os.close(handle)


def write_text_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def remove_parts(folder: Path, *patterns: str) -> None:
    """Delete parts of files that killed processes left; no process may be writing these files."""
    for pattern in patterns:
        for part in folder.glob(f"{pattern}.*.part"):
            part.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked_file(file: Path, held: Callable[[], None], patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a file, which is created, within a block; forked processes do not get it.

    The lock is that of flock, which NFS has, too.

    If another process or thread has it for ``patience`` seconds, ``held`` is called, and may raise;
    otherwise the caller waits. Raises OSError if the file cannot be opened, or is a link.
    """
    # filelock takes 50 ms to import, and most commands lock nothing.
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


def is_file_locked(file: Path) -> bool:
    """Whether any process or thread has the lock, this one too; it need not be a user's own file.

    For a moment, the check takes a shared lock, which other checks do not notice.
    """
    try:
        with open(file, "rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        # If the file system has no locks, `locked_file` reports it.
        return error.errno not in (errno.ENOENT, errno.ENOLCK, errno.ENOSYS)
    return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder, and let one process at a time fill it; a waiting process logs that."""

    def wait() -> None:
        logger.info("waiting for another process that is preparing text in %s", folder)

    with ExitStack() as stack:
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked_file(folder / ".lock", wait))
        yield


def remembered(folder: Path, question: str, answer: Callable[[], str]) -> str:
    """The cached answer to a question, which names all that the answer depends on, or a new one."""
    file = folder / "answers" / hashlib.sha256(question.encode()).hexdigest()[:24]
    known = file.read_text(encoding="utf-8") if file.is_file() else ""
    if known:
        return known
    text = answer()
    with _writing(folder):
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as part:
            part.write_text(text, encoding="utf-8")
    return text


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write to the cache {folder} ({error.strerror}); make it writable, or train "
            "with data.cache=FOLDER"
        ) from error
