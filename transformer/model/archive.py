"""A file of plain values and tensors: written whole or not at all, and read whole or not at all.

It does not know what they mean. It is opened with ``weights_only=True`` and in no other way, so
that no code in it ever runs.
"""

import errno
import os
import uuid
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import torch

from transformer.errors import InputError, is_out_of_memory
from transformer.files import sync


def write_archive(values: Any, path: Path, previous: Path | None = None) -> None:
    """Write the file: a reader never sees half of it, nor does one after a power failure.

    Args:
        values: Plain values and tensors.
        path: The file.
        previous: What to rename the file to that was there before; None overwrites it. At every
            moment a whole file lies under one of the two names.

    Raises:
        InputError: It cannot be written, as when the disk is full; what was there is whole.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(values, path, previous)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}; free some space, or mend the "
            "folder"
        ) from error


def _replace(values: Any, path: Path, previous: Path | None) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        # Made like any new file, so that the user's umask says who may read it.
        with temporary.open("xb") as file:
            _save(values, file)
            file.flush()
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _save(values: Any, file: IO[bytes]) -> None:
    try:
        torch.save(values, file)
    except RuntimeError as error:
        # torch says that its writer is at the wrong place, and hides why.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Delete what killed processes were writing when they meant to write one of these files."""
    for name in names:
        for file in folder.glob(f".{name}.*"):
            file.unlink(missing_ok=True)


class Unread(InputError):
    """The system could not read a file, of which nothing is known but that."""


def read_archive(path: Path) -> Any:
    """What the file holds, on the CPU.

    torch does not look at the checksums in the file, so a flipped bit would pass for a weight.

    Raises:
        Unread: The system could not read it; it may be whole.
        InputError: It is not there, is damaged, or holds more than plain values and tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if (damaged := archive.testzip()) is not None:
                raise zipfile.BadZipFile(damaged)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise Unread(f"{path} cannot be read: there is not enough memory") from error
        # A damaged archive lets its reader look before the beginning of the file.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise Unread(f"{path} cannot be read: {error.strerror}") from error
        # Bytes that are no archive make the readers fail in every way there is.
        raise InputError(
            f"{path} cannot be read as a checkpoint: it is damaged, or holds more than plain "
            "values and tensors; use another"
        ) from error
