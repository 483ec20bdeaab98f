"""A file of plain values and tensors: written whole or not at all, and read whole or not at all.

Files are opened with ``torch.load(weights_only=True)`` only. The records of the archive are checked
against the size of the file before they are loaded, and the types and the nesting of the values
before they are used, so that the size of the file bounds time and memory.
"""

import errno
import os
import pickletools
import zipfile
from collections.abc import Iterable
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
"""Maximum nesting of the values."""

_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.bool,
)
_GLOBALS = ("collections OrderedDict", "torch._utils _rebuild_tensor_v2")
"""Globals, besides storages, in a pickle of plain values and tensors by ``torch.save``."""


def write_archive(values: Any, path: Path, previous: Path | None = None) -> None:
    """Write plain values and tensors atomically, also if the power fails: no file is partial.

    The old file is renamed to ``previous``, or overwritten: at every moment, one of the two names
    has a whole file. Raises InputError if the file cannot be written; then the old file is intact.
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
            # On a full disk, torch reports the position of its writer; the OSError is its context.
            cause = error.__context__
            if isinstance(cause, OSError):
                raise cause from None
            raise
        file.flush()
        os.fsync(file.fileno())


class UnreadableFile(InputError):
    """The system could not read a file; the file may be whole."""


def read_archive(path: Path, *, tensors: bool = True) -> Any:
    """Read a file onto the CPU: dicts, lists, tuples, texts, numbers, None, dense tensors.

    The bytes are read once, to verify their checksums: torch alone would load a weight with a
    flipped bit. The tensors are private mappings of the file, which keep it open and take memory
    where they are changed. Without ``tensors``, those have no data (device ``meta``), and their
    bytes are neither read nor verified. Raises InputError if the file does not exist, is damaged,
    or contains other types; UnreadableFile if the system could not read it.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            structure, data = checked_sizes(archive, path.stat().st_size)
            # Before they are mapped: a disk that fails then is an error here, and a signal there.
            if tensors and archive.testzip() is not None:
                raise zipfile.BadZipFile("a checksum differs")
            # The file that was verified, even if another one has its name by now.
            verified = f"/dev/fd/{file.fileno()}"
            device = "cpu" if tensors else "meta"
            values = torch.load(verified, map_location=device, weights_only=True, mmap=tensors)
            fault = _first_fault(values, structure, data)
    except Interrupted:
        raise
    except Exception as error:  # readers of a damaged archive raise almost any
        raise _unreadable(path, error) from error
    if fault is not None:
        raise InputError(f"{path} cannot be read as a checkpoint: {fault}; use another")
    return values


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


def checked_sizes(archive: zipfile.ZipFile, size: int) -> tuple[int, int]:
    """The bytes of the pickle, and of all tensors, in an archive of this size.

    Any exception means that it is damaged, or may hold more than plain values and tensors.
    """
    records = archive.infolist()
    [pickled] = (record for record in records if record.filename.endswith("/data.pkl"))
    compressed = any(record.compress_type != zipfile.ZIP_STORED for record in records)
    overlap = sum(record.file_size for record in records) > size
    if compressed or overlap or pickled.file_size > _MAX_STRUCTURE:
        raise zipfile.BadZipFile("torch writes no such archive")
    for opcode, argument, _ in pickletools.genops(archive.read(pickled)):
        if not _is_plain(opcode.name, argument):
            raise zipfile.BadZipFile("torch writes no such archive")
    data = sum(record.file_size for record in records if "/data/" in record.filename)
    return pickled.file_size, data


def _is_plain(opcode: str, argument: Any) -> bool:
    """Whether torch writes this opcode of a pickle for plain values and tensors."""
    if opcode == "GLOBAL":
        is_storage = argument.startswith("torch ") and argument.endswith("Storage")
        return is_storage or argument in _GLOBALS
    return opcode != "PROTO" or argument == torch.serialization.DEFAULT_PROTOCOL


def _first_fault(values: Any, max_values: int, max_bytes: int) -> str | None:
    """The first fault in the values of an archive; None if there is none.

    A pickle of ``max_values`` bytes has at most ``max_values`` values: a walk over more of them
    means that a list contains itself, or is repeated many times. All tensors have ``max_bytes``.
    """
    stack = [(values, 0)]
    seen = 0
    tensors: list[Tensor] = []
    while stack:
        node, depth = stack.pop()
        seen += 1
        if depth > _MAX_DEPTH or seen > max_values:
            return "its values hold each other, or are nested too deep"
        if isinstance(node, dict):
            if not all(type(key) in (str, int) for key in node):
                return "a key is neither a text nor a number"
            stack += [(value, depth + 1) for value in node.values()]
        elif isinstance(node, list | tuple):
            stack += [(value, depth + 1) for value in node]
        elif isinstance(node, Tensor):
            if node.dtype not in _DTYPES or node.nbytes > node.untyped_storage().nbytes():
                return f"a tensor has the type {node.dtype}, or is larger than its bytes"
            tensors.append(node)
        elif not isinstance(node, str | int | float | None):
            return f"it holds a value of the type {type(node).__name__}"
        elif type(node) is int and abs(node) >= 2**63:
            return "a number is larger than any that is written"
    return "tensors overlap" if _overlap(tensors, max_bytes) else None


def _overlap(tensors: Iterable[Tensor], max_bytes: int) -> bool:
    """Whether all tensors, or all storages, have more bytes together than the file has for them.

    Several names may share a tensor; but tensors that overlap otherwise would take longer to read
    than the file. The pickle gives the size of a mapped storage, which could exceed its record.
    """
    mapped = [tensor for tensor in tensors if not tensor.is_meta]
    views = {(t.data_ptr(), t.dtype, t.shape): t.nbytes for t in mapped}
    storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in mapped)}
    return not sum(views.values()) <= sum(storages.values()) <= max_bytes
