"""A checkpoint in several files: an index, and what each rank held of every shared tensor.

All are written by ``torch.save`` and opened with ``weights_only=True``, like a checkpoint of one
file (checkpoint.py), into which they are joined whenever they are read. It does not know what the
tensors are.
"""

import errno
import io
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer.common.errors import InputError
from transformer.model.checkpoint.archive import read_archive

logger = logging.getLogger(__name__)

SHARDS = "shards"
"""Key of the index that names the other files, rank by rank."""

SUFFIX = ".shard"

_PLACE = "place in the shards"


def split(tree: Any, part_of: Callable[[Any], Tensor | None]) -> tuple[Any, list[Tensor]]:
    """Take what this rank holds of the shared tensors out of a tree of plain values.

    Args:
        tree: Dicts, lists and what else.
        part_of: This rank's rows of a shared tensor; None of anything else.

    Returns:
        The tree with a mark in place of each shared tensor, and this rank's parts in their order.
    """
    parts: list[Tensor] = []

    def marked(node: Any) -> Any:
        part = part_of(node)
        if part is not None:
            parts.append(part)
            return {_PLACE: len(parts) - 1}
        if isinstance(node, Mapping):
            return {key: marked(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(map(marked, node))
        return node

    return marked(tree), parts


def joined(index: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Put the tensors together again: the payload of a checkpoint of one file.

    Args:
        index: As it is in its file; one without shards is returned as it is.
        folder: Where the shards lie.

    Raises:
        InputError: A shard is missing, damaged, or no plain file name.
    """
    if SHARDS not in index:
        return index
    names = _names(index)
    if not names:
        raise InputError(f"a checkpoint in {folder} names its shards in no way that is known")
    shards = [_read(folder, name) for name in names]
    if len({len(shard) for shard in shards}) != 1:
        raise InputError(f"the shards {', '.join(names)} in {folder} are not of one save")
    whole: dict[tuple[int, ...], Tensor] = {}

    def filled(node: Any) -> Any:
        if isinstance(node, dict):
            if _PLACE in node:
                parts = [shard[node[_PLACE]] for shard in shards]
                # Names that share one tensor share one again.
                key = tuple(part.data_ptr() for part in parts)
                if key not in whole:
                    whole[key] = torch.cat(parts)
                return whole[key]
            return {key: filled(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(map(filled, node))
        return node

    try:
        return {key: filled(value) for key, value in index.items() if key != SHARDS}
    except (LookupError, TypeError, RuntimeError) as error:
        raise InputError(f"the shards {', '.join(names)} in {folder} do not fit") from error


def _names(index: Any) -> list[str]:
    """The shards that an index names, which are plain file names; none of what is no index."""
    names = index.get(SHARDS) if isinstance(index, dict) else None
    plain = isinstance(names, list) and all(
        isinstance(name, str) and name.endswith(SUFFIX) and name == Path(name).name
        for name in names
    )
    return list(names or []) if plain else []


def shard_names(file: Path) -> Sequence[str]:
    """The shards that a checkpoint names; none if it is one file, or damaged.

    Raises:
        InputError: The disk does not give the file, so that nobody knows what it names.
    """
    try:
        index = _index(file)
    except (OSError, MemoryError) as error:
        # A damaged archive lets its reader look before the beginning of the file.
        if isinstance(error, OSError) and error.errno == errno.EINVAL:
            return []
        raise InputError(f"{file} cannot be read: {error}") from error
    except Exception:
        # Bytes that are no pickle make the reader fail in every way there is.
        return []
    return _names(index)


def delete_unnamed(folder: Path) -> None:
    """Delete the shards that no checkpoint of the folder names any more.

    Where a checkpoint cannot be read for the moment, its shards might be any: all stay this time.
    """
    try:
        named = {name for file in folder.glob("*.ckpt") for name in shard_names(file)}
        for shard in folder.glob(f"*{SUFFIX}"):
            if shard.name not in named:
                shard.unlink(missing_ok=True)
    except (OSError, InputError) as error:
        logger.warning("%s; the shards that no checkpoint needs stay for now", error)


def _index(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except OSError:
        raise
    except Exception:
        # torch hides an error of the disk: only bytes that have been read can be no pickle.
        whole = io.BytesIO(file.read_bytes())
    return torch.load(whole, map_location="cpu", weights_only=True)


def _read(folder: Path, name: str) -> list[Tensor]:
    path = folder / name
    if not path.is_file():
        raise InputError(f"the checkpoint is in several files, and {name} is not in {folder}")
    shard = read_archive(path)
    if not isinstance(shard, list) or not all(isinstance(part, Tensor) for part in shard):
        raise InputError(f"{path} is not a shard of a checkpoint")
    return shard
