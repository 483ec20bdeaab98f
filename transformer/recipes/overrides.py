"""``KEY=VALUE`` arguments of verbs: how values are written, and which of several counts.

It does not know the keys. The grammar is that of Hydra 1.3.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError

_BARE = re.compile(r"[A-Za-z0-9_./*@?|-]+")
_OTHER_TYPE = re.compile(r"[+-]?[0-9_.]+(e[+-]?[0-9]+)?|[+-]?(inf|nan)|null|true|false", re.I)


def override(key: str, value: Any) -> str:
    """One argument; the value is of plain types, or a path.

    Raises:
        InputError: A text in it cannot be said.
    """
    return f"{key}={literal(value)}"


def literal(value: Any) -> str:
    """A value as Hydra reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{literal(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(literal, value)) + "]"
    return _text(str(value) if isinstance(value, Path) else value)


def _text(text: str) -> str:
    """Quoted, if it would be read as something else.

    Raises:
        InputError: It would be so even then.
    """
    if "${" in text:
        raise InputError(f"{text}: ${{ stands for the value of another key; choose another name")
    if _BARE.fullmatch(text) and not _OTHER_TYPE.fullmatch(text):
        return text
    # A backslash counts only where a quotation mark comes next.
    escaped = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + (m[2] and "\\'"), text)
    return f"'{escaped}'"


def key_of(argument: str) -> str:
    """The key of an argument."""
    return argument.partition("=")[0]


def merged(*groups: Iterable[str]) -> tuple[str, ...]:
    """All arguments; of those with one key the last, in the place of the first."""
    found = {key_of(argument): argument for group in groups for argument in group}
    return tuple(found.values())
