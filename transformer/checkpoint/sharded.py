"""A checkpoint of several ranks: an index, which is one file, and a folder with their parts.

torch.distributed.checkpoint (DCP) writes and reads the parts, so that any number of ranks can
resume. A folder of DCP describes itself in a pickle, ``.metadata``, which could run code when it is
read. It is never read here: the index has its content as plain values.
"""

import io
import logging
import os
import shutil
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.tensor import DTensor
from torch.futures import Future
from torch.utils._pytree import KeyPath, tree_map, tree_map_with_path

from transformer.checkpoint.archive import SHARDS, UnreadableFile, checked_sizes, read_archive
from transformer.common.errors import InputError, Interrupted

logger = logging.getLogger(__name__)

SUFFIX = ".dcp"
"""End of the names of folders with parts."""

_PART = ".distcp"
"""End of the names of DCP's files."""

_STORED = "stored in the parts"
"""Key of the mark that replaces a tensor in the index: its number."""

_DTYPES = {str(t): t for t in (torch.float32, torch.float64, torch.float16, torch.bfloat16)}


class _ChunkLocation(NamedTuple):
    """The position of one rank's rows of a tensor in a file, with DCP's names."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: None = None


@dataclass(frozen=True, eq=False)
class Parts:
    """A folder with the parts of a checkpoint, and DCP's description of it."""

    folder: Path
    metadata: Metadata

    def read(self, tensors: Mapping[str, Tensor]) -> None:
        """Read tensors in place, of sharded ones the rows of this rank; or InputError."""
        try:
            with warnings.catch_warnings(action="ignore"):
                # Each rank finds its rows by itself.
                dcp.load(
                    dict(tensors),
                    storage_reader=_Reader(self),
                    planner=dcp.DefaultLoadPlanner(flatten_state_dict=False),
                    no_dist=True,
                )
        except CheckpointException as failed:
            [(error, _)] = failed.failures.values()
            if not isinstance(error, Exception) or isinstance(error, Interrupted):
                raise error from None
            raise InputError(
                f"{self.folder} cannot be read: {' '.join(str(error).split())[:200]}; use another "
                "checkpoint"
            ) from error


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that has not been read yet."""

    parts: Parts
    name: str

    @property
    def metadata(self) -> TensorStorageMetadata:
        metadata = self.parts.metadata.state_dict_metadata[self.name]
        assert isinstance(metadata, TensorStorageMetadata)
        return metadata

    @property
    def shape(self) -> Size:
        return self.metadata.size

    def empty(self, scratch: Path | None = None) -> Tensor:
        """Memory for the whole tensor; with a ``scratch`` folder, a mapped file without a name."""
        shape = self.shape
        dtype = self.metadata.properties.dtype
        if scratch is None or not shape.numel():
            return torch.empty(shape, dtype=dtype)
        with NamedTemporaryFile(dir=scratch) as file:
            # Without room, writing to a mapped file would kill the process.
            _allocate(file.fileno(), shape.numel() * dtype.itemsize, scratch)
            mapped = torch.from_file(file.name, shared=True, size=shape.numel(), dtype=dtype)
        return mapped.view(shape)


class _Reader(dcp.FileSystemReader):
    """Reads parts by the description in the index, each byte once, with the checks of an archive.

    DCP's reader knows no checksums, and its files no other check than torch's.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.folder)
        self.metadata = parts.metadata
        self.folder = parts.folder

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self.metadata

    def read_data(self, plan: dcp.LoadPlan, planner: dcp.LoadPlanner) -> Future[None]:
        for item in plan.items:
            rows = self._saved_rows(self.metadata.storage_data[item.storage_index])
            starts = zip(item.storage_offsets, item.lengths, strict=True)
            rows = rows[tuple(slice(start, start + length) for start, length in starts)]
            target = planner.resolve_tensor(item).detach()
            target.copy_(rows)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _saved_rows(self, piece: _ChunkLocation) -> Tensor:
        path = self.folder / piece.relative_path
        with path.open("rb") as file:
            file.seek(piece.offset)
            data = io.BytesIO(file.read(piece.length))
        try:
            with zipfile.ZipFile(data) as archive:
                checked_sizes(archive, piece.length)
                damaged_record = archive.testzip()
        except Exception as error:  # readers of a damaged archive raise almost any
            raise zipfile.BadZipFile(f"{path} is damaged ({error})") from error
        if damaged_record is not None:
            raise zipfile.BadZipFile(f"{path} is damaged")
        data.seek(0)
        tensor: Tensor = torch.load(data, map_location="cpu", weights_only=True)
        return tensor


def _allocate(file: int, size: int, folder: Path) -> None:
    """Reserve space on the disk, if the system can; InputError if there is too little."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            raise InputError(
                f"{folder} has no room for {size:,} bytes ({error.strerror}); free some space"
            ) from error


def split(payload: dict[str, Any]) -> tuple[dict[str, Any], dict[str, DTensor]]:
    """Separate the sharded tensors, by name, from the index: plain values, and copies on the CPU.

    Tied weights have one name, on all ranks the same.
    """
    # A rank may have no row of a tensor, and then no address: storages are told apart as objects.
    storages: list[Any] = []
    numbers: dict[tuple[Any, ...], int] = {}
    tensors: dict[str, DTensor] = {}

    def mark(path: KeyPath, value: Any) -> Any:
        if not isinstance(value, DTensor):
            # The next update changes it while it is written.
            return value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value
        local = value.to_local()
        storages.append(local.untyped_storage())
        key = id(storages[-1]), local.storage_offset(), value.shape
        if key not in numbers:
            numbers[key] = len(tensors)
            tensors[".".join(str(_step(step)) for step in path)] = value
        return {_STORED: numbers[key]}

    return tree_map_with_path(mark, payload), tensors


def _step(step: Any) -> Any:
    return step.key if hasattr(step, "key") else step.idx


def described(metadata: Metadata, names: list[str], folder: Path) -> dict[str, Any]:
    """DCP's description of the parts, as plain values; ``names`` are those of ``split``, in order.

    Each rank has some rows of a tensor. ``pieces`` has a row for each part of a tensor: numbers of
    tensor and file, first byte, number of bytes, first row, number of rows.
    """
    files = sorted({location.relative_path for location in metadata.storage_data.values()})
    pieces = []
    tensors = []
    for number, name in enumerate(names):
        tensor: Any = metadata.state_dict_metadata[name]
        tensors.append([name, str(tensor.properties.dtype), list(tensor.size)])
        for chunk in tensor.chunks:
            if not chunk.sizes.numel():
                continue
            location = metadata.storage_data[MetadataIndex(name, chunk.offsets)]
            pieces.append(
                [
                    number,
                    files.index(location.relative_path),
                    location.offset,
                    location.length,
                    chunk.offsets[0],
                    chunk.sizes[0],
                ]
            )
    table = torch.tensor(pieces, dtype=torch.int64)
    return {"folder": folder.name, "files": files, "tensors": tensors, "pieces": table}


def locate(index: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The payload of an index in a folder; its sharded tensors are not read yet (StoredTensor).

    Raises InputError if the parts are not all there.
    """
    name = part_folder(index)
    if name is None:
        raise InputError(f"a checkpoint in {folder} does not name a folder of parts beside it")
    try:
        table = index[SHARDS]
        parts = Parts(folder / name, _metadata(table, folder / name))
        stored = [StoredTensor(parts, name) for name, *_ in table["tensors"]]
        return tree_map(
            lambda node: stored[node[_STORED]] if _is_mark(node) else node, index, is_leaf=_is_mark
        )
    except FileNotFoundError as error:
        raise InputError(f"{error.filename}, a part of a checkpoint, is missing") from error
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"the parts in {folder / name} do not fit their index") from error


def _is_mark(node: Any) -> bool:
    return isinstance(node, dict) and _STORED in node


def _metadata(table: Mapping[str, Any], folder: Path) -> Metadata:
    """DCP's description of parts; any error means that they do not fit, or are damaged.

    Each row of each tensor lies in one piece, and the pieces are no larger than the files, so that
    their size bounds time and memory.
    """
    files = table["files"]
    tensors = {}
    locations: dict[MetadataIndex, _ChunkLocation] = {}
    sizes = []
    for name in files:
        if name != Path(name).name or not name.endswith(_PART):
            raise ValueError(f"{name} is no file of parts")
        sizes.append((folder / name).stat().st_size)
    for name, dtype, shape in table["tensors"]:
        properties = TensorProperties(dtype=_DTYPES[dtype])
        tensors[name] = TensorStorageMetadata(properties, Size(shape), [])
    names = list(tensors)
    rows = dict.fromkeys(tensors, 0)
    total = 0
    for number, file, start, length, first, count in table["pieces"].tolist():
        name = names[number]
        tensor = tensors[name]
        offset = Size([first, *[0] * (len(tensor.size) - 1)])
        shape = Size([count, *tensor.size[1:]])
        fits = shape.numel() * tensor.properties.dtype.itemsize <= length and start >= 0
        if first != rows[name] or count < 1 or not fits or start + length > sizes[file]:
            raise ValueError(f"{name} is not whole")
        rows[name] += count
        total += length
        tensor.chunks.append(ChunkStorageMetadata(offset, shape))
        locations[MetadataIndex(name, offset)] = _ChunkLocation(files[file], start, length)
    whole = all(not t.size.numel() or rows[name] == t.size[0] for name, t in tensors.items())
    if not whole or total > sum(sizes):
        raise ValueError("a tensor is not whole, or pieces overlap")
    return Metadata(dict(tensors), storage_data=locations)


def read_whole(payload: dict[str, Any], scratch: Path | None = None) -> dict[str, Any]:
    """Read the tensors that ``locate`` has left out; tied names share one tensor again.

    With a ``scratch`` folder, they are mapped files and not memory of this process.
    """
    tensors: dict[StoredTensor, Tensor] = {}

    def allocate(value: Any) -> Any:
        if not isinstance(value, StoredTensor):
            return value
        if value not in tensors:
            tensors[value] = value.empty(scratch)
        return tensors[value]

    payload = tree_map(allocate, {key: v for key, v in payload.items() if key != SHARDS})
    read_into(tensors.items())
    return payload


def read_into(tensors: Iterable[tuple[StoredTensor, Tensor]]) -> None:
    """Read stored tensors into others, of sharded ones the rows of this rank.

    Raises InputError if they cannot be read.
    """
    by_parts: dict[Parts, dict[str, Tensor]] = {}
    for stored, tensor in tensors:
        by_parts.setdefault(stored.parts, {})[stored.name] = tensor
    for parts, named in by_parts.items():
        parts.read(named)


def part_folder(index: Any) -> str | None:
    """The name of the folder with the parts of an index; None unless it is a plain name."""
    table = index.get(SHARDS) if isinstance(index, dict) else None
    name = table.get("folder") if isinstance(table, dict) else None
    plain = isinstance(name, str) and name.endswith(SUFFIX) and name == Path(name).name
    return name if plain else None


def part_folder_of(file: Path) -> str | None:
    """``part_folder`` of a file; None if it is whole, or damaged; InputError if unreadable."""
    try:
        return part_folder(read_archive(file, tensors=False))
    except UnreadableFile:
        raise
    except InputError:
        return None


def delete_unnamed(folder: Path) -> None:
    """Delete parts that no checkpoint of the folder needs, if all can be read."""
    try:
        named = {part_folder_of(file) for file in folder.glob("*.ckpt")}
        for parts in folder.glob(f"*{SUFFIX}"):
            if parts.name not in named:
                shutil.rmtree(parts)
    except (OSError, InputError) as error:
        logger.warning("%s; no part is deleted this time", error)
