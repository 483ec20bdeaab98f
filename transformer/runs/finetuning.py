"""A new run that begins with the weights and the vocabulary of a checkpoint."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from transformer.checkpoint.checkpoint import (
    PORTABLE,
    TEXT_TO_TEXT,
    checkpoint_task,
    read_merged,
)
from transformer.checkpoint.locate import find_checkpoint
from transformer.common.errors import InputError, errors_name
from transformer.common.files import given_path
from transformer.data.corpora.mixture import config_tags
from transformer.data.corpora.trust import require_trust
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.runs.resume import other_weights
from transformer.settings.model import LEARNING_KEYS
from transformer.settings.run import RunConfig
from transformer.tasks.registry import is_translation

logger = logging.getLogger(__name__)


def initial_payload(config: RunConfig, path: Path) -> dict[str, Any]:
    """The checkpoint that a new run begins with; InputError if it is of another model."""
    with errors_name("finetune_from"):
        payload = read_merged(find_checkpoint(path))
    if not _same_kind(payload, config.task):
        return payload
    now = {"tokenizer": asdict(config.tokenizer), "model": config.model}
    if other := _other_model(_former(payload), now):
        settings = (OmegaConf.to_yaml({k: v}).strip().replace(": ", "=") for k, v in other.items())
        raise InputError(
            f"finetune_from={path} has another vocabulary or model than this run; set "
            f"{' '.join(settings)}"
        )
    if is_translation(config.task) or config.task in TEXT_TO_TEXT:
        _log_other_scoring(config, path, payload[PORTABLE]["config"])
        payload = grown(payload, config_tags(config.data), config.tokenizer.words)
    return payload


def _same_kind(payload: dict[str, Any], task: str) -> bool:
    trained = checkpoint_task(payload)
    return trained == task or {trained, task} <= {*TEXT_TO_TEXT}


def _log_other_scoring(config: RunConfig, path: Path, before: Mapping[str, Any]) -> None:
    """Log metrics and searches that differ: only the user knows whether both texts are alike."""
    now = {"metrics": asdict(config.metrics), "decoding": asdict(config.decoding)}
    other = [
        f"{group}.{key}={value}"
        for group, own in now.items()
        for key, value in before[group].items()
        if not isinstance(value, list | tuple) and own.get(key, value) != value
    ]
    if other:
        logger.info(
            "%s was scored with %s; if the text is alike, set the same", path, " ".join(other)
        )


def grown(payload: dict[str, Any], tags: Tags, words: Sequence[str]) -> dict[str, Any]:
    """A translator with more tags and words, whose vectors are means: old text stays the same."""
    portable = payload[PORTABLE]
    before = Tokenizer.from_state(portable["tokenizer"])
    now = before.with_words(words).with_tags(before.tags.extended(tags))
    if now.fingerprint == before.fingerprint:
        return payload
    source, target = now.grown_from(before)
    weights = dict(payload["state_dict"])
    for name, rows in (
        ("source_embedding.tokens.lookup.weight", source),
        ("target_embedding.tokens.lookup.weight", target),
        ("projection.weight", target),
        ("projection.bias", target),
    ):
        if (weight := weights.get(f"model.{name}")) is not None:
            # A single row stays as it is, bit for bit.
            means = [weight[r[0]] if len(r) == 1 else weight[list(r)].mean(0) for r in rows]
            weights[f"model.{name}"] = torch.stack(means)
    new = len(target) - before.target_vocab_size
    logger.info("tokens added to the vocabulary of the checkpoint: %d", new)
    sizes = {"source_vocab_size": len(source), "target_vocab_size": len(target)}
    more = {"tokenizer": now.to_state(), "model": portable["model"] | sizes}
    return payload | {"state_dict": weights, PORTABLE: portable | more}


def take_model(config: DictConfig, given: Collection[str], *, trusted: bool) -> None:
    """Set what is not ``given`` of model and vocabulary to the values of the checkpoint."""
    try:
        payload = read_merged(find_checkpoint(given_path(str(config.finetune_from))))
    except InputError:
        return
    now: Any = OmegaConf.to_container(config)
    if not _same_kind(payload, now["task"]):
        return
    require_trust({"model": payload[PORTABLE]["model"]}, trusted, config.finetune_from, given)
    both = payload[PORTABLE]["tokenizer"]["tags"].get("both_sides")
    if both and "data.target_tag" not in given:
        config.data.target_tag = "both"
    for _ in range(2):  # with learned positions, their number matters too
        now = OmegaConf.to_container(config)
        for key, value in _other_model(_former(payload), now).items():
            if not {key, key.partition(".")[0]} & set(given):
                OmegaConf.update(config, key, value)
    if config.data.features is None and "data.features" not in given:
        config.data.features = config.tokenizer.features


def _former(payload: dict[str, Any]) -> dict[str, Any]:
    vocabulary = Tokenizer.from_state(payload[PORTABLE]["tokenizer"]).config
    return {"tokenizer": asdict(vocabulary), "model": payload[PORTABLE]["model"]}


def _other_model(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of ``tokenizer`` and ``model`` that need other weights, with their former values."""
    free = {key: now["model"][key] for key in LEARNING_KEYS if key in now["model"]}
    keys = other_weights(before["model"] | free, now["model"])
    models = {f"model.{key}": before["model"][key] for key in keys}
    vocabularies = {
        f"tokenizer.{key}": before["tokenizer"][key]
        for key, value in now["tokenizer"].items()
        if key not in ("sampling", "add", "sentinels") and before["tokenizer"][key] != value
    }
    return vocabularies | models
