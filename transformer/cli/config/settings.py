"""Composed configs to the dataclasses of commands: below this module nobody knows Hydra."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args, get_type_hints

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import LAUNCHED, given_launch, given_sentences
from transformer.common.schema import field_key, override_key, typed

SETTINGS: dict[str, str] = {
    "ask": "commands:AskConfig",
    "attention": "commands:AttentionConfig",
    "average": "commands:AverageConfig",
    "clean": "corpora:CleanConfig",
    "compare": "evaluation:CompareConfig",
    "consolidate": "commands:ConsolidateConfig",
    "doctor": "corpora:DoctorConfig",
    "evaluate": "evaluation:EvaluateConfig",
    "export": "commands:ExportConfig",
    "heads": "commands:HeadsConfig",
    "import": "commands:ImportConfig",
    "predict": "translator:PredictConfig",
    "push": "commands:PushConfig",
    "report": "commands:ReportConfig",
    "score": "evaluation:ScoreConfig",
    "select": "evaluation:SelectConfig",
    "serve": "commands:ServeConfig",
    "shortlist": "commands:ShortlistConfig",
    "stress": "evaluation:StressConfig",
    "text": "corpora:TextConfig",
    "translate": "translator:TranslateConfig",
    "tune": "evaluation:TuneConfig",
}
"""The dataclass of each command, in ``transformer.settings``."""

_LIMITS = ("max_length_ratio", "max_length_offset")


def command_settings(verb: str, config: DictConfig, arguments: Sequence[str]) -> Any:
    """The typed settings of a command; InputError if a value is wrong."""
    kind = resolve_name(f"transformer.settings.{SETTINGS[verb]}")
    values = plain_values(kind, config, arguments)
    if verb == "attention":
        values |= given_sentences(arguments)
    elif verb in LAUNCHED:
        values |= given_launch(arguments)
    return typed(kind, values, "")


def plain_values(kind: type, config: DictConfig, arguments: Sequence[str]) -> dict[str, Any]:
    """The values of a config as its dataclass takes them."""
    values: Any = OmegaConf.to_container(config)
    if "decoding" in values:
        values["decoding"] = search_changes(arguments, values["decoding"])
    written = dict(one.partition("=")[::2] for one in arguments)
    hints = {field_key(name): hint for name, hint in get_type_hints(kind).items()}
    return {
        key: _as_text(value, hints.get(key), written.get(key, str(value)))
        for key, value in values.items()
    }


def _as_text(value: Any, hint: Any, written: str) -> Any:
    """The value, or what was written where the field takes a text and Hydra has read a number.

    ``2014`` may be a folder, and ``2.10`` is another head than ``2.1``.
    """
    kinds = {hint, *get_args(hint)}
    if isinstance(value, list) and Sequence[str] in kinds:
        return [_as_text(item, str, str(item)) for item in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return written if is_number and kinds & {str, Path} and not kinds & {int, float} else value


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
