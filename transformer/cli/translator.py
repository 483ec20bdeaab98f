"""The translator that the keys of a verb describe."""

from collections.abc import Sequence
from dataclasses import fields

from omegaconf import DictConfig, OmegaConf

from transformer.checkpoint.checkpoint import Checkpoint
from transformer.checkpoint.locate import is_ctranslate2
from transformer.cli.config.compose import resolve_path
from transformer.cli.config.settings import plain_values
from transformer.cli.threads import set_search_threads
from transformer.common.errors import InputError
from transformer.common.schema import field_key, typed
from transformer.decoding.translation.translator import Translator
from transformer.interchange.translators import load_translator, needs_run
from transformer.settings.run import RunConfig
from transformer.settings.translator import TranslatorConfig


def load(config: DictConfig, arguments: Sequence[str]) -> tuple[Translator, RunConfig]:
    """The translator, and the config of the run that trained it."""
    if config.get("engine") == "ctranslate2" and not OmegaConf.is_list(config.checkpoint):
        export = resolve_path(config, "checkpoint")
        for key in ("alignment", "attention"):
            if config.get(key) and is_ctranslate2(export):
                raise InputError(f"{key}= {needs_run(export)}")
    # What only computes has this key; what reads or writes weights needs them as they are.
    as_stored = "precision" not in config
    return load_translator(
        translator_config(config, arguments), as_stored=as_stored, loaded=set_threads
    )


def translator_config(config: DictConfig, arguments: Sequence[str]) -> TranslatorConfig:
    """The settings of a translator, by those keys that the verb has."""
    keys = {field_key(field.name) for field in fields(TranslatorConfig)} & {*map(str, config)}
    of_translator = OmegaConf.masked_copy(config, sorted(keys))
    return typed(TranslatorConfig, plain_values(TranslatorConfig, of_translator, arguments), "")


def set_threads(checkpoints: Sequence[Checkpoint]) -> None:
    """Set the threads of a search with these models."""
    set_search_threads(weight for one in checkpoints for weight in one.model.parameters())
