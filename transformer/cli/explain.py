"""What Hydra refuses, said in one line: which argument is wrong, and what was probably meant."""

import difflib
import re
from collections.abc import Sequence

from hydra.errors import OverrideParseException
from omegaconf import DictConfig

_UNKNOWN_CHOICE = re.compile(
    r"Could not find '(?P<group>[^']+)/(?P<name>[^']+)' "
    r"Available options in '(?P=group)': (?P<choices>.*?)(?: Config search path:|$)"
)
_UNQUOTED_LIST = re.compile(r"Ambiguous value for argument '(?P<key>[^'=]+)=(?P<value>.*?)' 1\. ")


def explained(error: Exception, overrides: Sequence[str], config: DictConfig) -> str:
    """What is wrong with the arguments of a call.

    Args:
        error: That Hydra has raised.
        overrides: The user's arguments.
        config: Of a call without any.
    """
    message = " ".join(str(error).split())
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override} cannot be read; give KEY=VALUE, with quotes around a text that has "
            "brackets or other signs: \"KEY='VALUE'\""
        )
    if found := _UNKNOWN_CHOICE.search(message):
        return _unknown_choice(found["group"], found["name"], found["choices"].split())
    if found := _UNQUOTED_LIST.search(message):
        key, value = found.group("key", "value")
        return (
            f"{key}={value} is neither a text nor a list: write '{key}=[{value}]' for a list; "
            "to sweep over the values, add --multirun"
        )
    known = known_keys(config)
    for override in overrides:
        key = re.split(r"[=@]", override.lstrip("+~"))[0]
        if f"'{key}'" in message or f"Key '{key.split('.')[-1]}'" in message:
            if key in known:
                break
            return f"unknown key {key} {nearest_key(key, config)}".strip()
    return message


def nearest_key(key: str, config: DictConfig) -> str:
    """What the user may have meant, in parentheses; empty when nothing is near."""
    return _meant(key, known_keys(config), cutoff=0.5)


def known_keys(config: DictConfig, prefix: str = "") -> list[str]:
    """Every key of a config, dotted."""
    keys = []
    for name in map(str, config):
        keys.append(f"{prefix}{name}")
        value = config._get_node(name)
        if isinstance(value, DictConfig):
            keys += known_keys(value, f"{prefix}{name}.")
    return keys


def _unknown_choice(group: str, name: str, choices: Sequence[str]) -> str:
    near = _meant(name, choices, cutoff=0.6)
    return f"{group}={name} is unknown{near and f' {near}'}; choose {' or '.join(choices)}"


def _meant(name: str, known: Sequence[str], cutoff: float) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"(did you mean {near[0]}?)" if near else ""
