"""The ``KEY=VALUE`` arguments of a verb, checked one by one before Hydra composes them."""

import os
from argparse import ArgumentError
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override
from hydra.errors import HydraException
from omegaconf import OmegaConf

from transformer.common.errors import InputError, did_you_mean, raise_objections
from transformer.common.files import PACKAGE

BASE_OF_CORPORA = "base"
"""The file of conf/data that all corpora build on; not itself a choice."""

_QUOTES = "close what is open, and quote a text that has brackets or quotes: \"KEY='VALUE'\""


def config_folder() -> Path:
    """``conf/`` as a wheel carries it, or as the checkout has it."""
    inside = PACKAGE / "conf"
    return inside if inside.is_dir() else PACKAGE.parent / "conf"


def choices(group: str) -> list[str]:
    """What a group of conf/ offers; nothing if there is no such group."""
    names = sorted(file.stem for file in (config_folder() / group).glob("*.yaml"))
    return [name for name in names if (group, name) != ("data", BASE_OF_CORPORA)]


def override_key(override: str) -> str:
    """The key of an argument."""
    return override.partition("=")[0]


def parse_override(override: str, verb: str = "train", *, sweeps: str | None = "") -> Override:
    """One argument of a verb as Hydra reads it.

    ``sweeps`` is the advice for several values; None allows them.
    """
    key, equals, text = override.partition("=")
    advice = ""
    if override.startswith("-"):
        advice = "keys have no dashes before them"
    elif override.startswith(("+", "~")) and override != "~experiment":
        advice = "no key can be added or removed"
    elif not equals and "checkpoint" in _verb_file(verb) and os.path.exists(override):
        advice = f"a run is given as checkpoint={override}"
    if advice or (not equals and override != "~experiment"):
        reason = f"{override!r} is not of the form KEY=VALUE"
        raise InputError("; ".join(filter(None, (reason, advice))))
    try:
        [parsed] = OverridesParser.create().parse_overrides([override])
    except HydraException as error:
        reason = " ".join(str(error).split()).partition(" See https://")[0]
        message = f"{override} is not KEY=VALUE as Hydra reads it ({reason}); {_QUOTES}"
        raise InputError(message) from error
    if parsed.is_sweep_override() and sweeps is not None:
        if choices(key):
            raise InputError(f"{key}={text} are several; {sweeps or 'choose one'}")
        ways = [sweeps, f"write '{key}=[{text}]' for a list", f"\"{key}='{text}'\" for a text"]
        raise InputError(f"{key}={text}: {', '.join(filter(None, ways))}")
    return parsed


def check_overrides(verb: str, overrides: Sequence[str], *, sweep: bool = False) -> None:
    """Check the form of arguments, and the choices of groups; Hydra passes over some of these."""
    hint = "add --multirun to sweep over them" if verb == "train" else ""
    parsed = [parse_override(one, verb, sweeps=None if sweep else hint) for one in overrides]
    raise_objections(reason for override in parsed for reason in _objections(verb, override))


def _objections(verb: str, override: Override) -> Iterator[str]:
    """Objections to the choices of a group."""
    group, known = override.key_or_group, choices(override.key_or_group)
    value: Any = override.value()
    if not known or override.is_delete():
        return
    if isinstance(value, list) and group not in _optional_groups(verb):
        yield f"{group}=[{','.join(map(str, value))}] is a list; choose one, {group}=NAME"
        return
    if override.is_sweep_override():
        value = value.list if isinstance(value, ChoiceSweep) else []
    for name in value if isinstance(value, list) else [value]:
        spelt = "null" if name is None else getattr(name, "text", str(name))
        if spelt not in known:
            meant = did_you_mean(spelt, known)
            yield f"{group}={spelt} is unknown{meant}; choose {' or '.join(known)}"


def flags_and_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The flags of Hydra with their values, and the other arguments, in any order."""
    parser = get_args_parser()
    parser.allow_abbrev = parser.exit_on_error = False
    try:
        parsed, unknown = parser.parse_known_intermixed_args(list(arguments))
    except ArgumentError as error:
        raise InputError(f"{error.argument_name}: {error.message}") from error
    for flag in unknown:
        parse_override(flag)
    overrides = parsed.overrides or []
    return [argument for argument in arguments if argument not in overrides], overrides


def _optional_groups(verb: str) -> frozenset[str]:
    """Groups that ``conf/VERB.yaml`` marks as optional in its defaults list."""
    entries = [entry for entry in _verb_file(verb).get("defaults", []) if isinstance(entry, dict)]
    keys = [key for entry in entries for key in entry]
    return frozenset(key.removeprefix("optional ") for key in keys if key.startswith("optional "))


@cache
def _verb_file(verb: str) -> dict[str, Any]:
    """The content of ``conf/VERB.yaml``."""
    file: Any = OmegaConf.to_container(OmegaConf.load(config_folder() / f"{verb}.yaml"))
    return dict(file)
