"""Composed configs to the dataclasses of commands: below this module nobody knows Hydra."""

from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transformer.common.schema import override_key, typed

SETTINGS: dict[str, str] = {
    "average": "average:AverageConfig",
    "consolidate": "consolidate:ConsolidateConfig",
    "report": "report:ReportConfig",
    "text": "text:TextConfig",
    "tune": "tune:TuneConfig",
}
"""The dataclass of each command, in ``transformer.settings``."""

_FIELDS = {"from": "from_"}
"""Keys that Python cannot have as names of fields."""

_LIMITS = ("max_length_ratio", "max_length_offset")


def command_settings(verb: str, config: DictConfig, arguments: Sequence[str]) -> Any:
    """The typed settings of a command; InputError if a value is wrong."""
    if verb not in SETTINGS:
        return config
    values: Any = OmegaConf.to_container(config)
    values = {_FIELDS.get(key, key): value for key, value in values.items()}
    if "decoding" in values:
        values["decoding"] = search_changes(arguments, values["decoding"])
    return typed(resolve_name(f"transformer.settings.{SETTINGS[verb]}"), values, "")


def search_changes(arguments: Sequence[str], composed: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments change of the search of a run, by key.

    ``decoding=NAME`` changes all but the limits of the length, which depend on the text and not on
    the search; ``decoding.KEY=`` changes a key.
    """
    keys = [override_key(argument) for argument in arguments]
    changed = {key.removeprefix("decoding.") for key in keys if key.startswith("decoding.")}
    if "decoding" in keys:
        changed |= composed.keys() - {*_LIMITS}
    return {key: composed[key] for key in composed if key in changed}
