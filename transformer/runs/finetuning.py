"""Fine-tuning: a new run that begins with the weights and the vocabulary of a checkpoint.

Optimiser, schedule and order of the batches are those of any new run. It does not know the text.
Luong and Manning 2015, "Stanford Neural Machine Translation Systems for Spoken Language Domains".
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transformer.common.errors import InputError, errors_name
from transformer.common.files import given_path
from transformer.common.schema import typed
from transformer.data.corpora.mixture import config_tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.evaluation.metrics import MetricsConfig
from transformer.model.checkpoint.checkpoint import PORTABLE, checkpoint_task, read_merged
from transformer.model.checkpoint.locate import find_checkpoint
from transformer.model.config import LEARNING_KEYS
from transformer.runs.resume import other_weights
from transformer.runs.vocabulary_growth import grown
from transformer.training.config import RunConfig

logger = logging.getLogger(__name__)


def initial_payload(config: RunConfig, path: Path) -> dict[str, Any]:
    """The checkpoint that a new run begins with, a file or a run directory.

    Raises:
        InputError: It cannot be read, or is of another vocabulary or model than the run.
    """
    try:
        payload = read_merged(find_checkpoint(path))
    except InputError as error:
        raise InputError(f"finetune_from: {error}") from error
    if checkpoint_task(payload) == config.task:
        _check_model(config, path, payload)
        if config.task == "translation":
            _log_other_metrics(config, path, payload)
            payload = grown(payload, config_tags(config.data), config.tokenizer.add)
    return payload


def take_model(config: DictConfig, given: Collection[str]) -> None:
    """Set ``model``, ``tokenizer`` and ``data.target_tag=both`` as the checkpoint has them.

    Nothing happens without a checkpoint that can be read, which a run that goes on does not need.

    Args:
        config: Of the new run.
        given: Keys and groups of the command, which stay as they are.
    """
    try:
        payload = read_merged(find_checkpoint(given_path(str(config.finetune_from))))
    except InputError:
        return
    now: Any = OmegaConf.to_container(config)
    if checkpoint_task(payload) != now["task"]:
        return
    both = payload[PORTABLE]["tokenizer"]["tags"].get("both_sides")
    if both and "data.target_tag" not in given:
        config.data.target_tag = "both"
    for key, value in other_model(_former(payload), now).items():
        if not {key, key.partition(".")[0]} & set(given):
            OmegaConf.update(config, key, value)


def _former(payload: dict[str, Any]) -> dict[str, Any]:
    """The groups ``model`` and ``tokenizer`` of a checkpoint."""
    vocabulary = Tokenizer.from_state(payload[PORTABLE]["tokenizer"]).config
    return {"tokenizer": asdict(vocabulary), "model": payload[PORTABLE]["model"]}


def _check_model(config: RunConfig, path: Path, payload: dict[str, Any]) -> None:
    now = {"tokenizer": asdict(config.tokenizer), "model": config.model}
    if other := other_model(_former(payload), now):
        raise InputError(
            f"finetune_from={path} has another vocabulary or model than this run; set "
            f"{_settings(other)}"
        )


def _log_other_metrics(config: RunConfig, path: Path, payload: dict[str, Any]) -> None:
    """Log metrics that differ: only the user knows whether both texts are tokenised alike."""
    with errors_name(path):
        trained = typed(MetricsConfig, payload[PORTABLE]["config"]["metrics"], "metrics")
    before, now = asdict(trained), asdict(config.metrics)
    keys = [key for key in ("tokenize", "lowercase") if now[key] != before[key]]
    if other := {f"metrics.{key}": before[key] for key in keys}:
        own = {key: now[key.removeprefix("metrics.")] for key in other}
        logger.info(
            "scored with %s, but %s with %s; if the text is alike, set the same",
            *(_settings(own), path, _settings(other)),
        )


def other_model(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of ``tokenizer`` and ``model`` that need other weights, with their former values.

    Args:
        before: The two groups of the trained weights.
        now: The two groups of the run that begins with them.
    """
    free = {key: now["model"][key] for key in LEARNING_KEYS if key in now["model"]}
    keys = other_weights(before["model"] | free, now["model"])
    models = {f"model.{key}": before["model"][key] for key in keys}
    vocabularies = {
        f"tokenizer.{key}": before["tokenizer"][key]
        for key, value in now["tokenizer"].items()
        if key not in ("sampling", "add") and before["tokenizer"][key] != value
    }
    return vocabularies | models


def _settings(values: Mapping[str, Any]) -> str:
    """Settings as the user writes them."""
    return " ".join(OmegaConf.to_yaml({k: v}).strip().replace(": ", "=") for k, v in values.items())
