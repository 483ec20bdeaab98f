"""The translator that the keys of a verb describe."""

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transformer.checkpoint.checkpoint import Checkpoint
from transformer.checkpoint.locate import is_ctranslate2
from transformer.cli.config.compose import resolve_path
from transformer.cli.threads import set_search_threads
from transformer.common.errors import InputError
from transformer.common.schema import override_key, typed
from transformer.decoding.translation.translator import Translator
from transformer.interchange.translators import load_translator, needs_run
from transformer.settings.decoding import SearchConfig, without_limits
from transformer.settings.run import RunConfig
from transformer.settings.translator import TranslatorConfig

_KEYS = (
    *("checkpoint", "averaging", "to", "tag", "from", "heads_off", "alignment_threshold", "device"),
    *("precision", "batch_tokens", "engine", "engine_folder", "trust"),
)


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
        translator_config(config, arguments), as_stored=as_stored, loaded=_set_threads
    )


def translator_config(config: DictConfig, arguments: Sequence[str]) -> TranslatorConfig:
    """The settings of a translator, by those keys that the verb has."""
    values: dict[str, Any] = {key: config[key] for key in _KEYS if key in config}
    values = {key: plain(value) for key, value in values.items()}
    names = values["checkpoint"]
    # A name such as 2014 is a number to Hydra.
    values["checkpoint"] = [*map(str, names)] if isinstance(names, list) else str(names)
    heads = values.get("heads_off")
    values["heads_off"] = [*map(str, heads)] if isinstance(heads, list) else heads and str(heads)
    if "decoding" in config:
        values["decoding"] = search_changes(arguments, plain(config.decoding))
    # As it was typed: the config would take 2.10 for 2.1.
    typed_head = dict(one.partition("=")[::2] for one in arguments).get("alignment_head", "null")
    if typed_head != "null":
        values["alignment_head"] = typed_head.strip("\"'")
    return typed(TranslatorConfig, values, "")


def search_changes(arguments: Sequence[str], composed: dict[str, Any]) -> dict[str, Any]:
    """What a call changes in the search of a run: ``decoding=NAME`` all, ``decoding.KEY=`` a key.

    Limits of the length stay those of the run: they depend on the text, not on the search.
    """
    keys = list(map(override_key, arguments))
    changed = {key.removeprefix("decoding.") for key in keys if key.startswith("decoding.")}
    if "decoding" not in keys:
        return {key: composed[key] for key in changed}
    search = typed(SearchConfig, composed, "decoding")
    return {**without_limits(search), **{key: composed[key] for key in changed}}


def plain(value: Any) -> Any:
    """The value as Hydra's containers hold it."""
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _set_threads(checkpoints: Sequence[Checkpoint]) -> None:
    set_search_threads(weight for one in checkpoints for weight in one.model.parameters())
