"""``KEY=VALUE`` arguments of verbs, in the grammar of Hydra 1.3."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transformer.common.errors import InputError, did_you_mean
from transformer.common.schema import override_key

_BARE = re.compile(r"[A-Za-z0-9_./*@?|-]+")
_OTHER_TYPE = re.compile(r"[+-]?[0-9_.]+(e[+-]?[0-9]+)?|[+-]?(inf|nan)|null|true|false", re.I)

_NAMES = ("output", "monolingual", "reverse", "teacher")
"""Keys of recipes whose value is the name of a file, with any characters."""

_NOT_FOR_RECIPES = ("hydra.", "-", "+", "~", "launch")
"""How arguments begin that set no key of a single run."""


def override(key: str, value: Any) -> str:
    """One argument; raises InputError for a text that Hydra cannot read."""
    return f"{key}={_literal(value)}"


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(_literal, value)) + "]"
    text = str(value)
    if "${" in text:
        raise InputError(f"{text}: ${{ stands for the value of another key; choose another name")
    if _BARE.fullmatch(text) and not _OTHER_TYPE.fullmatch(text):
        return text
    # A backslash is itself, but before a quote it escapes the next character.
    return "'" + re.sub(r"(\\*)(?='|\Z)", r"\1\1", text).replace("'", r"\'") + "'"


def merged(*groups: Iterable[str]) -> tuple[str, ...]:
    """All arguments; of those with the same key the last, at the index of the first."""
    by_key = {override_key(argument): argument for group in groups for argument in group}
    return tuple(by_key.values())


def sort_arguments(
    arguments: Sequence[str], recipe_keys: set[str], training_keys: set[str], kinds: Sequence[str]
) -> tuple[list[str], list[str], dict[str, list[str]]]:
    """Sort arguments into those of the recipe, of all trainings, and of each kind of stage."""
    for_recipe: list[str] = []
    base: list[str] = []
    extras: dict[str, list[str]] = {kind: [] for kind in kinds}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        head, dot, _ = key.partition(".")
        stage_key = argument.removeprefix(f"{head}.") if dot and head in kinds else None
        refused = (stage_key or key).startswith(_NOT_FOR_RECIPES)
        if not equals or (refused and key != "translate.launch"):
            raise InputError(f"{argument} is not for a recipe, which takes KEY=VALUE; leave it out")
        if key in recipe_keys:
            is_name = key in _NAMES and value != "null" and not value.startswith(("'", '"'))
            for_recipe.append(override(key, value) if is_name else argument)
        elif stage_key is not None:
            extras[head].append(stage_key)
        elif head in training_keys - recipe_keys:
            base.append(argument)
        else:
            known = sorted({*recipe_keys, *training_keys, *kinds})
            raise InputError(f"unknown key {key}{did_you_mean(head, known, cutoff=0.5)}")
    return for_recipe, base, extras
