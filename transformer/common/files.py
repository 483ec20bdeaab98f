"""Paths of users, and atomic writes."""

import errno
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from transformer.common.errors import InputError

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
    """Raise InputError if a file or folder exists; make sure that it can be written."""
    if output.exists():
        raise InputError(f"{output} exists; remove it, or choose another with output=")
    require_writable(output.parent)


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
