"""Composes the config of a command from conf/ and the user's arguments."""

import os
import re
from collections.abc import Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from transformer.cli.config.arguments import (
    check_overrides,
    choices,
    config_folder,
    known_keys,
    names_vocabulary_size,
    nearest_key,
    search_path,
)
from transformer.common.errors import ALSO, InputError
from transformer.common.schema import override_key, typed_value
from transformer.settings.run import RunConfig, run_config, untied
from transformer.settings.tokenizer import FILES

LAUNCHED = ("translate", "score")
"""Commands whose ``launch`` is a key; to Hydra it is the group of ``train``."""

_OWN_METRIC = {
    "train": ("metrics.custom={}", "metrics.choose=custom"),
    "tune": ("custom={}", "metric=custom"),
    **dict.fromkeys(("evaluate", "compare", "stress"), ("custom={}",)),
}


def as_overrides(verb: str, arguments: Sequence[str]) -> list[str]:
    """The arguments as Hydra reads them: no sentences and paths, but keys for an own metric."""
    if verb in LAUNCHED:
        arguments = [one for one in arguments if override_key(one) != "launch"]
    if verb == "attention":
        sentences = given_sentences(arguments)
        kept = [one for one in arguments if override_key(one) not in sentences]
        return [*kept, *(f"{key}=given" for key in sentences)]
    if verb in ("compare", "report"):
        arguments = ["runs=[]", *split_paths(arguments)[1]]
    own = [one for one in arguments if re.fullmatch(r"metrics=[\w.]+:\w+", one)]
    if not own or verb not in _OWN_METRIC:
        return list(arguments)
    keys = [key.format(own[-1].partition("=")[2]) for key in _OWN_METRIC[verb]]
    return [*keys, *(one for one in arguments if one not in own)]


def given_sentences(arguments: Sequence[str]) -> dict[str, str]:
    """The sentences of ``attention`` as typed: Hydra would read commas and brackets as more."""
    given = (one.partition("=") for one in arguments if one != "target=null")
    # Bytes that are not UTF-8 become signs of replacement.
    return {
        key: os.fsencode(value).decode(errors="replace")
        for key, equals, value in given
        if equals and key in ("text", "target")
    }


def given_launch(arguments: Sequence[str]) -> dict[str, str | None]:
    """The key ``launch`` of the commands LAUNCHED, if it is given."""
    given = (one.partition("=") for one in arguments)
    return {key: None if text == "null" else text for key, _, text in given if key == "launch"}


def split_paths(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The paths of ``compare`` and ``report``, which Hydra does not read, and other arguments."""
    # A key has no slash: runs/lr=0.1 is a path.
    paths = [one for one in arguments if "=" not in one or "/" in override_key(one)]
    return paths, [one for one in arguments if one not in paths]


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
    several, given = "averaging" in config or verb == "serve", config.get("checkpoint")
    if isinstance(given, ListConfig) and not (several and given):
        takes = "one checkpoint or more" if several else "one checkpoint, and no list"
        raise InputError(f"checkpoint={given}: {verb} takes {takes}")
    if missing := sorted(OmegaConf.missing_keys(config)):
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
    return untied(run_config(values))


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


def composition_error(verb: str, overrides: Sequence[str], error: Exception) -> InputError:
    """What to tell the user when Hydra cannot compose: all unknown keys, else its own message."""
    groups = [override for override in overrides if choices(override_key(override))]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        try:
            config = compose(verb, [*groups, *search_path()])
        except HydraException:
            config, groups = compose(verb), []
    own = known_keys(config)
    known = {*own, "~experiment", *map(override_key, groups)}
    # Hydra's own key, which only ``train`` has.
    own += ["hydra.run.dir"] if "trainer" in config else []
    keys = [key for key in map(override_key, overrides) if not key.lstrip("+").startswith("hydra")]
    unknown = [f"unknown key {key}{nearest_key(key, own)}" for key in keys if key not in known]
    return InputError(ALSO.join(unknown) or " ".join(str(error).split()))


def with_experiment(overrides: Sequence[str]) -> list[str]:
    """Add ``experiment=CORPUS``; Hydra's own way would not let it choose from other groups."""
    given: dict[str, Any] = dict(one.removeprefix("~").partition("=")[::2] for one in overrides)
    corpus = given.get("data", "")
    if "experiment" in given:
        return list(overrides)
    if "," in corpus or "(" in corpus:
        raise InputError(
            f"data={corpus} cannot take the experiment of each corpus; sweep over the experiments, "
            f"--multirun experiment={corpus}, or name one experiment for all"
        )
    return [*overrides, *([f"experiment={corpus}"] if corpus in choices("experiment") else [])]
