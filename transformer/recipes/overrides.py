"""``KEY=VALUE`` arguments of verbs: how values are written, and which argument is for what.

It does not know the keys. The grammar is that of Hydra 1.3.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transformer.common.errors import InputError, did_you_mean

_BARE = re.compile(r"[A-Za-z0-9_./*@?|-]+")
_OTHER_TYPE = re.compile(r"[+-]?[0-9_.]+(e[+-]?[0-9]+)?|[+-]?(inf|nan)|null|true|false", re.I)

_NAMES = ("output", "monolingual", "reverse")
"""Keys of recipes whose value is the name of a file, with any characters."""

_OF_HYDRA = ("hydra.", "-", "+", "~", "sweep", "cluster")
"""How arguments begin that set no key of a single run."""


def override(key: str, value: Any) -> str:
    """One argument; the value is of plain types, or a path.

    Raises:
        InputError: A text in it cannot be written.
    """
    return f"{key}={_literal(value)}"


def _literal(value: Any) -> str:
    """A value as Hydra reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_literal(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(_literal, value)) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    """Quoted, if it would be read as another type.

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


def override_key(argument: str) -> str:
    """The key of an argument."""
    return argument.partition("=")[0]


def merged(*groups: Iterable[str]) -> tuple[str, ...]:
    """All arguments; of those with one key the last, in the place of the first."""
    found = {override_key(argument): argument for group in groups for argument in group}
    return tuple(found.values())


def sort_arguments(
    arguments: Sequence[str], own: set[str], training: set[str], kinds: Sequence[str]
) -> tuple[list[str], list[str], dict[str, list[str]]]:
    """Sort the arguments of a call.

    Args:
        arguments: ``KEY=VALUE``, or ``KIND.KEY=VALUE``.
        own: The keys of the recipe.
        training: The groups of a training run, and its keys up to the first dot.
        kinds: The kinds of stages.

    Returns:
        Those for the recipe itself, for all training runs, and for the stages of each kind.

    Raises:
        InputError: One is none of these, or for Hydra itself.
    """
    for_recipe, base = list[str](), list[str]()
    extras: dict[str, list[str]] = {kind: [] for kind in kinds}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        head, dot, rest = argument.partition(".") if "." in key else (key, "", "")
        if not equals:
            raise InputError(f"{argument!r} is not of the form KEY=VALUE")
        if (rest if dot and head in kinds else key).startswith(_OF_HYDRA):
            raise InputError(f"{argument} is not for a recipe; leave it out")
        if key in own:
            quoted = value == "null" or value[:1] in ("'", '"')
            named = key in _NAMES and not quoted
            for_recipe.append(override(key, value) if named else argument)
        elif dot and head in kinds:
            extras[head].append(rest)
        elif head in training - own:
            base.append(argument)
        else:
            known = sorted({*own, *training, *kinds})
            raise InputError(f"unknown key {key}{did_you_mean(head, known, cutoff=0.5)}")
    return for_recipe, base, extras
