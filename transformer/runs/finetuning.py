"""Fine-tuning: a new run that begins with the weights and the vocabulary of a checkpoint.

Optimiser, schedule and order of the batches are those of any new run. It does not know the text.
Luong and Manning 2015, "Stanford Neural Machine Translation Systems for Spoken Language Domains".
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from torch import nn

from transformer.common.errors import InputError, errors_name
from transformer.common.schema import typed
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.evaluation.metrics import MetricsConfig
from transformer.model.checkpoint.checkpoint import (
    PORTABLE,
    checkpoint_task,
    load_weights,
    read_payload,
)
from transformer.model.checkpoint.locate import find_checkpoint
from transformer.runs.resume_compatibility import other_weights
from transformer.training.config import RunConfig

logger = logging.getLogger(__name__)


def initial_payload(config: RunConfig) -> dict[str, Any] | None:
    """The checkpoint that a new run begins with; None without one.

    Raises:
        InputError: It cannot be read, or is of another vocabulary or model than the run.
    """
    if config.finetune_from is None or config.checkpoint is not None:
        return None
    try:
        payload = read_payload(find_checkpoint(config.finetune_from))
    except InputError as error:
        raise InputError(f"finetune_from: {error}") from error
    vocabulary = Tokenizer.from_state(payload[PORTABLE]["tokenizer"]).config
    before = {"tokenizer": asdict(vocabulary), "model": payload[PORTABLE]["model"]}
    now = {"tokenizer": asdict(config.tokenizer), "model": config.model}
    if checkpoint_task(payload) == config.task and (other := other_model(before, now)):
        raise InputError(
            f"finetune_from={config.finetune_from} has another vocabulary or model than this run; "
            f"set {' '.join(_setting(key, value) for key, value in other.items())}"
        )
    _log_other_metrics(config, payload)
    return payload


def begin_with(model: nn.Module, payload: dict[str, Any], path: Path) -> None:
    """Load the weights of a checkpoint, or their moving average if there is one, to train them.

    Raises:
        InputError: They do not fit.
    """
    load_weights(model, payload, path)
    model.train()
    logger.info("beginning with the weights of %s", path)


def _log_other_metrics(config: RunConfig, payload: dict[str, Any]) -> None:
    """Log metrics that differ: only the user knows whether both texts are tokenised alike."""
    with errors_name(Path(str(config.finetune_from))):
        trained = typed(MetricsConfig, payload[PORTABLE]["config"]["metrics"], "metrics")
    before, now = asdict(trained), asdict(config.metrics)
    if config.task == "translation" and (keys := [key for key in now if before[key] != now[key]]):
        logger.info(
            "scored with %s, but %s with %s; if the text is alike, set the same",
            " ".join(_setting(f"metrics.{key}", now[key]) for key in keys),
            config.finetune_from,
            " ".join(_setting(f"metrics.{key}", before[key]) for key in keys),
        )


def other_model(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of ``tokenizer`` and ``model`` that need other weights, with their former values.

    Args:
        before: The two groups of the trained weights.
        now: The two groups of the run that begins with them.
    """
    models = {
        f"model.{key}": before["model"][key] for key in other_weights(before["model"], now["model"])
    }
    vocabularies = {
        f"tokenizer.{key}": before["tokenizer"][key]
        for key, value in now["tokenizer"].items()
        if key != "sampling" and before["tokenizer"][key] != value
    }
    return vocabularies | models


def _setting(key: str, value: Any) -> str:
    """A setting as the user writes it."""
    return OmegaConf.to_yaml({key: value}).strip().replace(": ", "=")
