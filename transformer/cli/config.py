"""From arguments to the dataclass of a command; the rooms below ``cli`` know nothing of Hydra."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args, get_type_hints

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from transformer.cli.arguments import (
    check_overrides,
    choices,
    config_folder,
    default_choice,
    known_keys,
    names_vocabulary_size,
    nearest_key,
    search_path,
)
from transformer.common.errors import ALSO, InputError
from transformer.common.schema import field_key, override_key, typed, typed_value
from transformer.settings.decoding import SearchConfig
from transformer.settings.run import RunConfig, completed, run_config
from transformer.settings.tokenizer import FILES

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

LAUNCHED = ("translate", "score")
"""Commands whose ``launch`` is a key; to Hydra it is the group of ``train``."""

_OWN_METRIC = {
    "train": ("metrics.custom={}", "metrics.choose=custom"),
    "tune": ("custom={}", "metric=custom"),
    "evaluate": ("custom={}",),
    "compare": ("custom={}",),
    "stress": ("custom={}", "metric=custom"),
}
"""What ``metrics=MODULE:FUNCTION`` sets."""

_NAMED_METRIC = {"evaluate": "scores=[{}]", "compare": "scores=[{}]"}
"""How a command takes metrics by name, where it is not ``metric=NAME``."""

_LENGTH_LIMITS = {"max_length_ratio", "max_length_offset"}


def compose_config(verb: str, arguments: Sequence[str]) -> DictConfig:
    """Compose ``conf/COMMAND.yaml`` with the arguments; ``HydraConfig`` gets Hydra's part."""
    overrides = as_overrides(verb, arguments)
    check_overrides(verb, overrides)
    if verb == "train":
        overrides = with_experiment(overrides)
    try:
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            whole = compose(verb, [*overrides, *search_path()], return_hydra_config=True)
        HydraConfig.instance().set_config(whole)
        str(whole.hydra.run.dir)  # raises if it cannot be resolved
        config = OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])
        OmegaConf.resolve(config)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise composition_error(verb, overrides, error) from error
    _check_vocabulary_size(config, overrides)
    _check_checkpoints(verb, config)
    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        keys = " and ".join(f"{key}=" for key in missing)
        raise InputError(f"{verb} needs a value for {keys}")
    if verb in ("compare", "report"):
        runs = typed_value(OmegaConf.to_container(config.runs), Sequence[str], "runs")
        config.runs = [*runs, *split_paths(arguments)[0]]
    return config


def run_settings(config: DictConfig) -> RunConfig:
    """The composed config of ``train`` as typed values; InputError if a value is wrong."""
    values: Any = OmegaConf.to_container(config, resolve=True)
    del values["precision"]  # trainer.precision has it
    return completed(run_config(values))


def command_settings(verb: str, config: DictConfig, arguments: Sequence[str]) -> Any:
    """The typed settings of another command; InputError if a value is wrong."""
    kind = resolve_name(f"transformer.settings.{SETTINGS[verb]}")
    values = _plain_values(kind, config, arguments)
    if verb == "attention":
        values |= typed_sentences(arguments)
    elif verb in LAUNCHED:
        values |= _launch(arguments)
    return typed(kind, values, "")


def as_overrides(verb: str, arguments: Sequence[str]) -> list[str]:
    """The arguments as Hydra reads them: no sentences and paths, but keys for an own metric."""
    arguments = list(arguments)
    if verb in LAUNCHED:
        arguments = [argument for argument in arguments if override_key(argument) != "launch"]
    if verb == "attention":
        sentences = typed_sentences(arguments)
        arguments = [argument for argument in arguments if override_key(argument) not in sentences]
        return [*arguments, *(f"{key}=given" for key in sentences)]
    if verb in ("compare", "report"):
        arguments = ["runs=[]", *split_paths(arguments)[1]]
    if verb not in _OWN_METRIC:
        return arguments
    given = [text for text in arguments if override_key(text) == "metrics"]
    metrics = [text for text in given if re.fullmatch(r"metrics=[\w.]+:\w+", text)]
    if verb != "train" and given != metrics:
        [name, *_] = [text.partition("=")[2] for text in given if text not in metrics]
        named = _NAMED_METRIC.get(verb)
        names = name.strip("[]")
        named = named.format(names) if named else f"metric={names.partition(',')[0]}"
        raise InputError(
            f"metrics={name} is not MODULE:FUNCTION, a metric of your own; metrics by name are "
            f"{named}"
        )
    if not metrics:
        return arguments
    name = metrics[-1].partition("=")[2]
    keys = [key.format(name) for key in _OWN_METRIC[verb]]
    return [*keys, *(argument for argument in arguments if argument not in metrics)]


def typed_sentences(arguments: Sequence[str]) -> dict[str, str]:
    """The sentences of ``attention`` as typed: Hydra reads commas and brackets as a list."""
    sentences = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in ("text", "target") and argument != "target=null":
            # Bytes that are not UTF-8 become replacement characters.
            sentences[key] = os.fsencode(value).decode(errors="replace")
    return sentences


def _launch(arguments: Sequence[str]) -> dict[str, str | None]:
    """The key ``launch`` of the commands LAUNCHED, if the command has it."""
    values: dict[str, str | None] = {}
    for argument in arguments:
        key, _, text = argument.partition("=")
        if key == "launch":
            values[key] = None if text == "null" else text
    return values


def split_paths(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The paths of ``compare`` and ``report``, which Hydra does not read, and other arguments."""
    # A key has no slash: runs/lr=0.1 is a path.
    paths = [text for text in arguments if "=" not in text or "/" in override_key(text)]
    return paths, [text for text in arguments if text not in paths]


def with_experiment(overrides: Sequence[str]) -> list[str]:
    """Add ``experiment=CORPUS``; Hydra's own way would not let it choose from other groups."""
    values = {"data": default_choice("train", "data")}
    for override in overrides:
        key, _, text = override.removeprefix("~").partition("=")
        values[key] = text
    if "experiment" in values:
        return list(overrides)
    corpus = values["data"]
    if "," in corpus or "(" in corpus:
        raise InputError(
            f"data={corpus} cannot take the experiment of each corpus; sweep over the experiments, "
            f"--multirun experiment={corpus}, or name one experiment for all"
        )
    if corpus in choices("experiment"):
        return [*overrides, f"experiment={corpus}"]
    return list(overrides)


def composition_error(verb: str, overrides: Sequence[str], error: Exception) -> InputError:
    """What to tell the user when Hydra cannot compose: all unknown keys, else its own message."""
    groups = [override for override in overrides if choices(override_key(override))]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        try:
            config = compose(verb, [*groups, *search_path()])
        except HydraException:
            config = compose(verb)
            groups = []
    candidates = known_keys(config)
    known = {*candidates, "~experiment", *map(override_key, groups)}
    if "trainer" in config:  # Hydra's own key, which only ``train`` has
        candidates.append("hydra.run.dir")
    keys = [key for key in map(override_key, overrides) if not key.lstrip("+").startswith("hydra")]
    unknown = [
        f"unknown key {key}{nearest_key(key, candidates)}" for key in keys if key not in known
    ]
    return InputError(ALSO.join(unknown) or " ".join(str(error).split()))


def _check_vocabulary_size(config: DictConfig, overrides: Sequence[str]) -> None:
    """Raise InputError for a size in the command of a vocabulary that is not learned."""
    if not names_vocabulary_size(overrides):
        return
    tokenizer = config.tokenizer
    kinds = {tokenizer.source or tokenizer.algorithm, tokenizer.target or tokenizer.algorithm}
    if kinds <= {*FILES} and tokenizer.vocab_size is not None:
        raise InputError(
            f"tokenizer.vocab_size={tokenizer.vocab_size} is not read with "
            f"tokenizer={min(kinds)}, whose vocabulary has its own size; leave it out"
        )


def _check_checkpoints(verb: str, config: DictConfig) -> None:
    """Raise InputError for a list of checkpoints of a command that takes one, and for no item."""
    checkpoint = config.get("checkpoint")
    takes_list = "averaging" in config or verb == "serve"
    if isinstance(checkpoint, ListConfig) and not (takes_list and checkpoint):
        takes = "one checkpoint or more" if takes_list else "one checkpoint, and no list"
        raise InputError(f"checkpoint={checkpoint}: {verb} takes {takes}")


def _plain_values(kind: type, config: DictConfig, arguments: Sequence[str]) -> dict[str, Any]:
    """The values of a config as its dataclass takes them."""
    values: Any = OmegaConf.to_container(config)
    if "decoding" in values:
        values["decoding"] = search_changes(arguments, values["decoding"])
    written = dict(argument.partition("=")[::2] for argument in arguments)
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
    takes_text = bool(kinds & {str, Path}) and not kinds & {int, float}
    return written if is_number and takes_text else value


def search_changes(arguments: Sequence[str], composed: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments change of the search of a run, by key.

    ``decoding=NAME`` changes all but the limits of the length, which depend on the text and not on
    the search, unless a choice of the user has others than the default; ``decoding.KEY=`` changes a
    key.
    """
    keys = [override_key(argument) for argument in arguments]
    changed = {key.removeprefix("decoding.") for key in keys if key.startswith("decoding.")}
    if "decoding" in keys:
        changed |= {
            key
            for key, value in composed.items()
            if key not in _LENGTH_LIMITS or value != getattr(SearchConfig, key)
        }
    return {key: composed[key] for key in composed if key in changed}
