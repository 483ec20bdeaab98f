"""A checkpoint in several files: an index, and a shard with each rank's rows of every tensor.

All are written and read like a checkpoint of one file (archive.py); reading joins them. It does
not know what the tensors are.
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
from transformer.model.checkpoint.archive import SHARDS as SHARDS
from transformer.model.checkpoint.archive import read_archive

logger = logging.getLogger(__name__)

SUFFIX = ".shard"

_NUMBER = "place in the shards"
"""Key of the mark that replaces a tensor in the index."""


def split(tree: Any, part_of: Callable[[Any], Tensor | None]) -> tuple[Any, list[Tensor]]:
    """Separate this rank's rows of the shared tensors from a tree of plain values.

    Args:
        tree: Nested dicts and lists.
        part_of: Returns this rank's rows of a shared tensor, and None for any other value.

    Returns:
        The tree with a mark instead of each shared tensor, and this rank's parts in order.
    """
    parts: list[Tensor] = []

    def marked(node: Any) -> Any:
        part = part_of(node)
        if part is not None:
            parts.append(part)
            return {_NUMBER: len(parts) - 1}
        if isinstance(node, Mapping):
            return {key: marked(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(map(marked, node))
        return node

    return marked(tree), parts


def join_shards(index: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Put the tensors together again: the payload of a checkpoint of one file.

    Args:
        index: The values of its file.
        folder: Folder of the shards.

    Raises:
        InputError: A shard is missing, damaged, or no plain file name.
    """
    names = _names(index)
    if not names:
        raise InputError(f"a checkpoint in {folder} does not name its shards as files beside it")
    shards = [_read(folder, name) for name in names]
    if len({len(shard) for shard in shards}) != 1:
        raise InputError(f"the shards {', '.join(names)} in {folder} are not of one save")
    whole: dict[tuple[int, ...], Tensor] = {}

    def filled(node: Any) -> Any:
        if isinstance(node, dict):
            if _NUMBER in node:
                parts = [shard[node[_NUMBER]] for shard in shards]
                # Tied names share one tensor again.
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
    """The shards that an index names; none unless all are plain file names."""
    names = index.get(SHARDS) if isinstance(index, dict) else None
    plain = isinstance(names, list) and all(
        isinstance(name, str) and name.endswith(SUFFIX) and name == Path(name).name
        for name in names
    )
    return list(names or []) if plain else []


def shard_names(file: Path) -> Sequence[str]:
    """The shards that a checkpoint names; none if it is one file, or damaged.

    Raises:
        InputError: The system cannot read the file.
    """
    try:
        index = _index(file)
    except (OSError, MemoryError) as error:
        # In a damaged archive, torch seeks to before the start of the file.
        if isinstance(error, OSError) and error.errno == errno.EINVAL:
            return []
        raise InputError(f"{file} cannot be read: {error}") from error
    except Exception:
        # The reader of a damaged pickle fails with almost any exception.
        return []
    return _names(index)


def delete_unnamed(folder: Path) -> None:
    """Delete the shards that no checkpoint of the folder names any more.

    If the system cannot read a checkpoint, its shards are unknown, and all stay.
    """
    try:
        named = {name for file in folder.glob("*.ckpt") for name in shard_names(file)}
        for shard in folder.glob(f"*{SUFFIX}"):
            if shard.name not in named:
                shard.unlink(missing_ok=True)
    except (OSError, InputError) as error:
        logger.warning("%s; no shard is deleted this time", error)


def _index(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except OSError:
        raise
    except Exception:
        # torch hides an error of the disk; reading the bytes first shows it.
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
