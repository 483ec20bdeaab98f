"""A checkpoint in several files: an index, and a shard with each rank's rows of every tensor."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from transformer.checkpoint.archive import SHARDS, UnreadableFile, read_archive
from transformer.common.errors import InputError

logger = logging.getLogger(__name__)

SUFFIX = ".shard"

_NUMBER = "place in the shards"
"""Key of the mark that replaces a tensor in the index."""


def split(tree: Any, part_of: Callable[[Any], Tensor | None]) -> tuple[Any, list[Tensor]]:
    """Separate this rank's rows (``part_of``) from a tree of plain values, which gets marks."""
    parts: list[Tensor] = []

    def mark(value: Any) -> Any:
        if (part := part_of(value)) is None:
            return value
        parts.append(part)
        return {_NUMBER: len(parts) - 1}

    return tree_map(mark, tree), parts


def join_shards(index: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Join shards to the payload of one file; InputError if one is missing or damaged."""
    names = _names(index)
    if not names:
        raise InputError(f"a checkpoint in {folder} does not name its shards as files beside it")
    shards = [read_archive(folder / name) for name in names]
    whole: dict[tuple[int, ...], Tensor] = {}

    def marks(node: Any) -> bool:
        return isinstance(node, dict) and _NUMBER in node

    def join(node: Any) -> Any:
        if not marks(node):
            return node
        parts = [shard[node[_NUMBER]] for shard in shards]
        # Tied names share one tensor again.
        key = tuple(part.data_ptr() for part in parts)
        if key not in whole:
            whole[key] = torch.cat(parts)
        return whole[key]

    try:
        tree = {key: value for key, value in index.items() if key != SHARDS}
        return tree_map(join, tree, is_leaf=marks)
    except (LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise InputError(f"the shards {', '.join(names)} in {folder} do not fit") from error


def _names(index: Any) -> list[str]:
    """The shards of an index; empty unless all are plain file names."""
    names = index.get(SHARDS) if isinstance(index, dict) else None
    plain = isinstance(names, list) and all(
        isinstance(name, str) and name.endswith(SUFFIX) and name == Path(name).name
        for name in names
    )
    return list(names or []) if plain else []


def shard_names(file: Path) -> list[str]:
    """The shards of a checkpoint; empty if it is one file, or damaged; InputError if unreadable."""
    try:
        # Unlike ``read_archive``, this does not read the tensors of a large file.
        return _names(torch.load(file, map_location="cpu", weights_only=True, mmap=True))
    except Exception:
        # torch hides an error of the disk; reading the bytes shows it.
        try:
            return _names(read_archive(file))
        except UnreadableFile:
            raise
        except InputError:
            return []


def delete_unnamed(folder: Path) -> None:
    """Delete shards that no checkpoint of the folder needs, if all can be read."""
    try:
        named = {name for file in folder.glob("*.ckpt") for name in shard_names(file)}
        for shard in folder.glob(f"*{SUFFIX}"):
            if shard.name not in named:
                shard.unlink(missing_ok=True)
    except (OSError, InputError) as error:
        logger.warning("%s; no shard is deleted this time", error)
