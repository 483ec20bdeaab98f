"""Files of others: JSON, YAML and npz. No code of them runs, and what they unpack to is bounded."""

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from transformer.common.errors import InputError

_MOST_BYTES = 200_000_000
"""Of a file of a vocabulary."""

_MOST_UNPACKED = 4
"""Weights are hardly smaller when packed: a file that unpacks to more times its size is refused."""

_DEEPEST, _MOST_EVENTS = 10, 2_000_000
"""Nested collections of a YAML file, and its keys and values; a vocabulary has 100,000 or so."""


def _damaged(file: Path, error: Exception) -> InputError:
    return InputError(f"{file} is damaged: {' '.join(str(error).split())[:120]}")


def read_json(file: Path) -> Any:
    """The content of a JSON file; raises InputError if it is missing or damaged."""
    try:
        return json.loads(read_bytes(file))
    except (ValueError, RecursionError) as error:
        raise _damaged(file, error) from error


def read_mapping(file: Path, *, optional: bool = False) -> dict[str, Any]:
    """The object in a JSON file; an empty one if it is optional and missing."""
    values = {} if optional and not file.is_file() else read_json(file)
    if not isinstance(values, dict):
        raise InputError(f"{file} is no JSON object")
    return values


def read_bytes(file: Path) -> bytes:
    """The content of a file; raises InputError if it is missing or too large."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise InputError(f"{file} is larger than {_MOST_BYTES:,} bytes")
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error


def read_yaml(file: Path, text: bytes | None = None) -> dict[str, Any]:
    """The mapping in a YAML file, or in a text of it; all its plain values are strings."""
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # constructs no objects
    text, depth = read_bytes(file) if text is None else text, 0
    try:
        for count, event in enumerate(yaml.parse(text, Loader=loader)):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST or count > _MOST_EVENTS:  # libyaml would crash, or fill the memory
                raise ValueError("it is too deep or too long")
        values = yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _damaged(file, error) from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise InputError(f"{file} holds no YAML mapping")
    return values


def read_arrays(file: Path) -> dict[str, Any]:
    """The arrays of an npz; none is unpickled.

    Raises InputError if it is missing, damaged, or unpacks to far more than its size.
    """
    damage = (OSError, ValueError, RuntimeError, EOFError, MemoryError, zlib.error)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if sum(one.file_size for one in members) > _MOST_UNPACKED * file.stat().st_size:
                raise InputError(f"{file} unpacks to more than {_MOST_UNPACKED} times its size")
            found = {}
            for one in members:
                with archive.open(one) as member:
                    name = one.filename.removesuffix(".npy")
                    found[name] = np.lib.format.read_array(member, allow_pickle=False)
            return found
    except (*damage, zipfile.BadZipFile) as error:
        raise _damaged(file, error) from error
