"""A file of plain values and tensors: written whole or not at all, and read whole or not at all.

Files are opened with ``weights_only=True`` only. Records are checked against the file size before
loading, and the nesting before use, so that the size of the file bounds time and memory.
"""

import errno
import io
import os
import pickletools
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer.common.errors import InputError, Interrupted, is_out_of_memory
from transformer.common.files import written_whole

SHARDS = "shards"
"""Key of the table of the parts, if a checkpoint of several ranks has them (sharded.py)."""

_MAX_STRUCTURE = 4 * 2**20
"""Maximum size of the pickle in bytes; that of a base model, without tensor data, has 0.1 MB."""

_MAX_DEPTH = 32
_DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool),
)
_GLOBALS = ("collections OrderedDict", "torch._utils _rebuild_tensor_v2")
"""Globals, besides storages, in a pickle of plain values and tensors by ``torch.save``."""


def write_archive(values: Any, path: Path, previous: Path | None = None) -> None:
    """Write plain values and tensors atomically: no reader sees a partial file.

    This is true after a power failure, too. The old file gets the name ``previous``, or is
    overwritten: at every moment, one of the two names has a whole file. Raises InputError if the
    file cannot be written; then the old file is intact.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as part:
            _save(values, part)
            if previous is not None and path.exists():
                os.replace(path, previous)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"{path}: cannot be written ({reason}); check the folder, or choose another path"
        ) from error


def _save(values: Any, path: Path) -> None:
    # Opened like any new file, so that the user's umask applies.
    with path.open("xb") as file:
        try:
            torch.save(values, file)
        except RuntimeError as error:
            # torch reports a wrong position of its writer, and hides the cause.
            cause = error.__context__
            raise (cause if isinstance(cause, OSError) else error) from None
        file.flush()
        os.fsync(file.fileno())


class UnreadableFile(InputError):
    """The system could not read a file; the file may be whole."""


def read_archive(path: Path) -> Any:
    """Read a file once onto the CPU: dicts, lists, tuples, texts, numbers, None, dense tensors.

    Checksums are verified; torch alone would load a weight with a flipped bit. Raises InputError if
    the file does not exist, is damaged, or contains other types; UnreadableFile if the system could
    not read it.
    """
    try:
        with _SummedReader(open(path, "rb", buffering=0)) as file, zipfile.ZipFile(file) as archive:
            size = _checked_size(archive, path)
            file.seek(0)
            values = torch.load(file, map_location="cpu", weights_only=True)
            _check_sums(archive, file)
    except Interrupted:
        raise
    except Exception as error:  # readers of a damaged archive raise almost any
        raise _unreadable(path, error) from error
    if (wrong := _first_fault(values, size)) is not None:
        raise InputError(f"{path} cannot be read as a checkpoint: {wrong}; use another")
    return values


class _SummedReader(io.BufferedReader):
    """A file that keeps size and checksum of what is read into a buffer, by its position.

    torch reads a tensor into its memory by one call.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(raw)
        self.sums: dict[int, tuple[int, int]] = {}

    def readinto(self, buffer: Any) -> int:
        position = self.tell()
        size = super().readinto(buffer)
        self.sums[position] = size, zlib.crc32(memoryview(buffer)[:size])
        return size


def _check_sums(archive: zipfile.ZipFile, file: _SummedReader) -> None:
    """Compare checksums with those of the archive; BadZipFile at the first that differs."""
    for record in archive.infolist():
        # The header of a record: 30 bytes, of which the last four have the lengths of two texts.
        file.seek(record.header_offset + 26)
        start = record.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
        if file.sums.get(start) != (record.file_size, record.CRC):
            # torch has not read it, or in several parts.
            with archive.open(record) as part:
                while part.read(2**20):
                    pass


def _unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError | IsADirectoryError):
        return InputError(f"{path} cannot be read: {error.strerror}")
    if is_out_of_memory(error):
        return UnreadableFile(f"{path} cannot be read: there is not enough memory")
    # In a damaged archive, zipfile seeks to before the start of the file: EINVAL.
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        return UnreadableFile(f"{path} cannot be read: {error.strerror}")
    return InputError(
        f"{path} cannot be read as a checkpoint: it is damaged, or holds more than plain "
        "values and tensors; use another"
    )


def _checked_size(archive: zipfile.ZipFile, path: Path) -> int:
    """The size of the pickle of an archive; any exception means a damaged archive."""
    records = archive.infolist()
    [pickled] = (record for record in records if record.filename.endswith("/data.pkl"))
    sound = (
        all(record.compress_type == zipfile.ZIP_STORED for record in records)
        # Otherwise records overlap.
        and sum(record.file_size for record in records) <= path.stat().st_size
        and pickled.file_size <= _MAX_STRUCTURE
        and all(_is_plain(c.name, a) for c, a, _ in pickletools.genops(archive.read(pickled)))
    )
    if not sound:
        raise zipfile.BadZipFile("torch writes no such archive")
    return pickled.file_size


def _is_plain(code: str, argument: Any) -> bool:
    """Whether an instruction of a pickle is one of plain values and tensors, by torch."""
    if code == "GLOBAL":
        storage = argument.startswith("torch ") and argument.endswith("Storage")
        return argument in _GLOBALS or storage
    return code != "PROTO" or argument == torch.serialization.DEFAULT_PROTOCOL


def _first_fault(values: Any, max_values: int) -> str | None:
    """The first fault in the values of an archive; None if there is none.

    A pickle of ``max_values`` bytes has at most ``max_values`` values. A walk over more values
    means that a list contains itself, or is nested many times.
    """
    waiting, seen = [(values, 0)], 0
    views: dict[tuple[Any, ...], int] = {}
    storages: dict[int, int] = {}
    while waiting:
        node, depth = waiting.pop()
        seen += 1
        if depth > _MAX_DEPTH or seen > max_values:
            return "its values hold each other, or are nested too deep"
        if isinstance(node, dict):
            if not all(type(key) in (str, int) for key in node):
                return "a key is neither a text nor a number"
            waiting += [(value, depth + 1) for value in node.values()]
        elif isinstance(node, list | tuple):
            waiting += [(value, depth + 1) for value in node]
        elif isinstance(node, Tensor):
            storage = node.untyped_storage()
            if node.dtype not in _DTYPES or node.nbytes > storage.nbytes():
                return f"a tensor has the type {node.dtype}, or is larger than its bytes"
            views[node.data_ptr(), node.dtype, node.shape] = node.nbytes
            storages[storage.data_ptr()] = storage.nbytes()
        elif not isinstance(node, str | int | float | None):
            return f"it holds a value of the type {type(node).__name__}"
        elif type(node) is int and abs(node) >= 2**63:
            return "a number is larger than any that is written"
    # Names may share a tensor; tensors that overlap would take longer to read than the file.
    return "tensors overlap" if sum(views.values()) > sum(storages.values()) else None
