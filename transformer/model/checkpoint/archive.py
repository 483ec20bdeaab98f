"""A file of plain values and tensors: written whole or not at all, and read whole or not at all.

A file is only opened with ``weights_only=True``, so that no code in it runs. Its records are
checked against its size before it is opened, and the nesting of its values before they are used,
so that time and memory are bounded by the size of the file.
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
"""Key of the names of further files, if a checkpoint has several (sharded.py)."""

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
    """Write plain values and tensors: a reader never sees half a file, nor after a power failure.

    The old file gets the name ``previous``, or is overwritten: at every moment a whole file has one
    of the two names. Raises InputError if it cannot be written; the old file is then intact.
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
            f"{path}: cannot be written ({reason}); mend the folder, or write elsewhere"
        ) from error


def _save(values: Any, path: Path) -> None:
    # Opened like any new file, so that the user's umask applies.
    with path.open("xb") as file:
        try:
            torch.save(values, file)
        except RuntimeError as error:
            # torch reports a wrong position of its writer, and hides the cause.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        file.flush()
        os.fsync(file.fileno())


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Delete the temporary files of killed processes that were writing one of these files."""
    for name in names:
        for file in folder.glob(f"{name}.*.part"):
            file.unlink(missing_ok=True)


class UnreadableFile(InputError):
    """The system could not read a file, which may be whole."""


def read_archive(path: Path) -> Any:
    """Read a file onto the CPU: dicts, lists, tuples, texts, numbers, None, dense tensors.

    Checksums are verified, which torch does not do: it would read a flipped bit as a weight. Raises
    InputError if it does not exist, is damaged, or holds something else; UnreadableFile if the
    system could not read it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            structure = _checked_structure(archive, path)
            if (damaged := archive.testzip()) is not None:
                raise zipfile.BadZipFile(damaged)
        values = torch.load(path, map_location="cpu", weights_only=True)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except Interrupted:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise UnreadableFile(f"{path} cannot be read: there is not enough memory") from error
        # In a damaged archive, zipfile seeks to before the start of the file: EINVAL.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise UnreadableFile(f"{path} cannot be read: {error.strerror}") from error
        # Readers of a damaged archive raise almost any exception.
        raise InputError(
            f"{path} cannot be read as a checkpoint: it is damaged, or holds more than plain "
            "values and tensors; use another"
        ) from error
    if (wrong := _first_fault(values, len(structure))) is not None:
        raise InputError(f"{path} cannot be read as a checkpoint: {wrong}; use another")
    return values


def _checked_structure(archive: zipfile.ZipFile, path: Path) -> bytes:
    """Read the pickle of an archive; any exception is a fault of its records or its pickle."""
    records = archive.infolist()
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        raise zipfile.BadZipFile("a checkpoint is not compressed")
    if sum(record.file_size for record in records) > path.stat().st_size:
        raise zipfile.BadZipFile("records overlap")
    [pickled] = (record for record in records if record.filename.endswith("/data.pkl"))
    if pickled.file_size > _MAX_STRUCTURE:
        raise zipfile.BadZipFile("there is too much besides the tensors")
    structure = archive.read(pickled)
    for code, argument, _ in pickletools.genops(structure):
        name = str(argument)
        if code.name == "GLOBAL" and not (
            name in _GLOBALS or (name.startswith("torch ") and name.endswith("Storage"))
        ):
            raise zipfile.BadZipFile(f"{name} is no plain value")
        if code.name == "PROTO" and argument != torch.serialization.DEFAULT_PROTOCOL:
            raise zipfile.BadZipFile("its pickle is not one that torch writes")
    return structure


def _first_fault(values: Any, max_values: int) -> str | None:
    """What is wrong with the values of an archive; None if nothing is.

    A pickle of ``max_values`` bytes holds no more values: a walk that meets more is in a list that
    contains itself, or that is nested many times over.
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
            if (wrong := _tensor_fault(node)) is not None:
                return wrong
            views[node.data_ptr(), node.dtype, node.shape] = node.nbytes
            storages[node.untyped_storage().data_ptr()] = node.untyped_storage().nbytes()
        elif not isinstance(node, str | int | float | None):
            return f"it holds a value of the type {type(node).__name__}"
        elif type(node) is int and abs(node) >= 2**63:
            return "a number is larger than any that is written"
    # Names may share a tensor; tensors that overlap would take longer to read than the file.
    return "tensors overlap" if sum(views.values()) > sum(storages.values()) else None


def _tensor_fault(tensor: Tensor) -> str | None:
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return "a tensor is sparse, quantized or without data"
    if tensor.dtype not in _DTYPES:
        return f"a tensor has the type {tensor.dtype}"
    if tensor.nbytes > tensor.untyped_storage().nbytes():
        return "a tensor is larger than its bytes"
    return None
