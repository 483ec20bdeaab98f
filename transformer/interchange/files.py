"""Files of others: JSON, YAML and npz. No code of them runs, and their unpacked size is bounded."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from transformer.common.errors import readable
from transformer.common.schema import typed_value

_MOST_UNPACKED = 4
"""Limit of the unpacked bytes of an npz, as a multiple of its size: weights hardly shrink."""

_DEEPEST = 10
"""Nested collections of a YAML file."""

_MOST_EVENTS = 2_000_000
"""Keys and values of a YAML file; a vocabulary has about 100,000."""


def read_json(file: Path) -> Any:
    """The content of a JSON file; raises InputError if it is missing or damaged."""
    with readable(file):
        return json.loads(file.read_bytes())


def read_mapping(file: Path, *, optional: bool = False) -> dict[str, Any]:
    """The object in a JSON file; an empty one if it is optional and missing."""
    values = {} if optional and not file.is_file() else read_json(file)
    mapping: dict[str, Any] = typed_value(values, Mapping[str, Any], str(file))
    return mapping


def write_json(values: Any, file: Path) -> None:
    """Write a JSON file that people can read, with line breaks."""
    file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_yaml(file: Path, text: bytes | None = None) -> dict[str, Any]:
    """The mapping in a YAML file, or in a text from it; scalars stay strings."""
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # constructs no objects
    depth = 0
    with readable(file, yaml.YAMLError):
        text = file.read_bytes() if text is None else text
        for count, event in enumerate(yaml.parse(text, Loader=loader)):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST or count > _MOST_EVENTS:  # libyaml would crash, or fill the memory
                raise ValueError("it is too deep or too long")
        values: dict[str, Any] = yaml.load(text, Loader=loader)
        # No message may show the values: aliases can make them huge.
        if not isinstance(values, dict):
            raise ValueError("it is no mapping")
    return values


def read_arrays(file: Path) -> dict[str, Any]:
    """The arrays of an npz, which may not unpack to far more than its size; none is unpickled."""
    with readable(file), zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > _MOST_UNPACKED * file.stat().st_size:
            raise ValueError(f"it unpacks to more than {_MOST_UNPACKED} times its size")
        arrays = {}
        for member in members:
            with archive.open(member) as file_of_array:
                name = member.filename.removesuffix(".npy")
                arrays[name] = np.lib.format.read_array(file_of_array, allow_pickle=False)
        return arrays
