"""What Hydra refuses, said in one line: which argument is wrong, and what was probably meant.

It does not know what the keys mean.
"""

import re
from collections.abc import Sequence

from hydra.errors import OverrideParseException
from omegaconf import DictConfig, OmegaConf

from transformer.errors import did_you_mean

_UNKNOWN_CHOICE = re.compile(
    r"Could not find '(?P<group>[^']+)/(?P<name>[^']+)' "
    r"Available options in '(?P=group)': (?P<choices>.*?)(?: Config search path:|$)"
)
_QUOTES = "close what is open, and quote a text that has brackets or quotes: \"KEY='VALUE'\""
_UNQUOTED_LIST = re.compile(r"Ambiguous value for argument '(?P<key>[^'=]+)=(?P<value>.*?)' 1\. ")


def explained(error: Exception, overrides: Sequence[str], config: DictConfig) -> str:
    """What is wrong with the arguments of a call.

    Args:
        error: That Hydra has raised.
        overrides: The user's arguments.
        config: That they are for.
    """
    message = " ".join(str(error).split())
    if isinstance(error, OverrideParseException):
        reason = message.partition(" See https://")[0]
        return f"{error.override} is not KEY=VALUE as Hydra reads it ({reason}); {_QUOTES}"
    if found := _UNKNOWN_CHOICE.search(message):
        return unknown_choice(found["group"], found["name"], found["choices"].split())
    if found := _UNQUOTED_LIST.search(message):
        return _several(found["key"], found["value"], config)
    known = known_keys(config)
    for override in overrides:
        key = re.split(r"[=@]", override.lstrip("+~"))[0]
        if f"'{key}'" in message or f"Key '{key.split('.')[-1]}'" in message:
            if key in known:
                break
            return f"unknown key {key}{nearest_key(key, config)}"
    return message


def _several(key: str, value: str, config: DictConfig) -> str:
    """What values with commas between them may have been meant for."""
    sweeps = "add --multirun to sweep over them" if "trainer" in config else ""
    if isinstance(OmegaConf.select(config, key), DictConfig):
        return f"{key}={value} are several; {sweeps or 'choose one'}"
    ways = [sweeps, f"write '{key}=[{value}]' for a list", f"\"{key}='{value}'\" for a text"]
    return f"{key}={value}: {', '.join(filter(None, ways))}"


def unknown_choice(group: str, name: str, known: Sequence[str]) -> str:
    """That a group has no choice of this name, and which it has."""
    return f"{group}={name} is unknown{did_you_mean(name, known)}; choose {' or '.join(known)}"


def nearest_key(key: str, config: DictConfig) -> str:
    """What the user may have meant, in parentheses; empty when nothing is near."""
    return did_you_mean(key, known_keys(config), cutoff=0.5)


def known_keys(config: DictConfig, prefix: str = "") -> list[str]:
    """Every key of a config, dotted."""
    keys = []
    for name in map(str, config):
        keys.append(f"{prefix}{name}")
        value = config._get_node(name)
        if isinstance(value, DictConfig):
            keys += known_keys(value, f"{prefix}{name}.")
    return keys
