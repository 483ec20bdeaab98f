"""The entries of a manifest as they are read: whole, or refused.

It does not know whether what they say still holds.
"""

import re
from collections.abc import Mapping
from typing import Any

_KINDS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "command": str,
    "config": Mapping,
    "seeds": Mapping,
    "inputs": Mapping,
    "version": Mapping,
    "begun": str,
    "ended": (str, type(None)),
    "seconds": (int, float),
}
_OF_DONE: dict[str, type] = {"outputs": Mapping, "scores": Mapping}


def read_entries(values: Any) -> list[dict[str, Any]]:
    """The entries of all stages that have begun, only the last of which may not be done.

    Raises:
        ValueError: One is not whole.
    """
    if not isinstance(values, list):
        raise ValueError("stages is not a list")
    for number, entry in enumerate(values, 1):
        if not isinstance(entry, dict):
            raise ValueError(f"stage {number} is not an entry")
        done = entry.get("ended") is not None
        for key, kind in (_KINDS | (_OF_DONE if done else {})).items():
            if not isinstance(entry.get(key), kind):
                raise ValueError(f"stage {number} has no {key}")
        earlier = entry.get("earlier_versions", [])
        if not isinstance(earlier, list) or not all(isinstance(one, dict) for one in earlier):
            raise ValueError(f"stage {number} has no list of earlier_versions")
        folder_name(entry["name"])
        if not done and number < len(values):
            raise ValueError(f"stage {number} has not ended, and another has begun")
    return values


def versions_of(entry: Mapping[str, Any]) -> list[Any]:
    """Of the code that began a stage, if it was gone on with by another, and of the last."""
    return [*entry.get("earlier_versions", ()), entry["version"]]


def folder_name(value: Any) -> str:
    """The name of a stage, whose folder may be deleted.

    Raises:
        ValueError: It may be of something else.
    """
    if not isinstance(value, str) or not re.fullmatch(r"\d{2,}_\w+", value):
        raise ValueError(f"a stage has the name {value!r}")
    return value
