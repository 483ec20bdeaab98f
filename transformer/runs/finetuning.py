"""A new run that begins with the weights and the vocabulary of a checkpoint."""

import logging
from collections.abc import Container, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from transformer.checkpoint.checkpoint import (
    PORTABLE,
    SINGLE_STACKS,
    TEXT_TO_TEXT,
    checkpoint_task,
    portable_part,
    read_merged,
    read_payload,
)
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.checkpoint.trust import require_trust
from transformer.common.errors import InputError, errors_name
from transformer.common.schema import different_fields
from transformer.data.corpora.resolve import config_tags
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer, settings_of_state
from transformer.interchange.translators import fetched
from transformer.settings.model import (
    LEARNING_KEYS,
    PATTERN_KEYS,
    other_weights,
    weight_keys,
)
from transformer.settings.run import RunConfig, changed_config
from transformer.settings.sources import TRAINING_ONLY
from transformer.tasks.registry import is_translation

logger = logging.getLogger(__name__)


def initial_payload(config: RunConfig, path: Path) -> dict[str, Any]:
    """The checkpoint that a new run begins with; InputError if it is of another model."""
    with errors_name("finetune_from"):
        payload = read_merged(find_checkpoint(path))
    if not _same_kind(payload, config.task):
        return payload
    before = portable_part(payload)
    vocabulary = Tokenizer.from_state(before.tokenizer).config
    model = before.config.model
    needed = {
        f"tokenizer.{key}": getattr(vocabulary, key)
        for key in different_fields(vocabulary, config.tokenizer)
        if key not in _FREE_OF_TOKENIZER
    }
    needed |= {
        f"model.{key}": getattr(model, key)
        for key in other_weights(model, config.model)
        if key not in LEARNING_KEYS
    }
    if needed:
        settings = (f"{key}={_shown(value)}" for key, value in needed.items())
        raise InputError(
            f"finetune_from={path} has another vocabulary or model than this run; set "
            f"{' '.join(settings)}"
        )
    if is_translation(config.task) or config.task in TEXT_TO_TEXT:
        _log_other_scoring(config, path, before.config)
        payload = grown(payload, config_tags(config.data), config.tokenizer.words)
    elif config.task in SINGLE_STACKS:
        payload = grown(payload, Tags(), config.tokenizer.words)
    return payload


def _same_kind(payload: dict[str, Any], task: str) -> bool:
    trained = checkpoint_task(payload)
    return trained == task or {trained, task} <= {*TEXT_TO_TEXT}


def _log_other_scoring(config: RunConfig, path: Path, before: RunConfig) -> None:
    """Log metrics and searches that differ: only the user knows whether both texts are alike."""
    groups = {
        "metrics": (before.metrics, config.metrics),
        "decoding": (before.decoding, config.decoding),
    }
    different = [
        f"{group}.{key}={getattr(old, key)}"
        for group, (old, new) in groups.items()
        for key in different_fields(old, new)
        if not isinstance(getattr(old, key), tuple)
    ]
    if different:
        logger.info(
            "%s was scored with %s; if the text is alike, set the same", path, " ".join(different)
        )


def grown(payload: dict[str, Any], tags: Tags, words: Sequence[str]) -> dict[str, Any]:
    """A checkpoint whose vocabulary has more tags and words.

    The vector of a new token is the mean of the vectors of its former subwords; the translations of
    text without new tokens stay the same.
    """
    portable = portable_part(payload)
    before = Tokenizer.from_state(portable.tokenizer)
    now = before.with_words(words).with_tags(before.tags.extended(tags))
    if now.fingerprint == before.fingerprint:
        return payload
    source, target = now.grown_from(before)
    added = len(target) - before.target_vocab_size
    if portable.config.task == "tagging":
        # Its outputs are tags of words, not tokens.
        target = [[tag] for tag in range(portable.config.model.target_vocab_size)]
    weights = dict(payload["state_dict"])
    former_rows = {
        "model.embedding.tokens.lookup.weight": source,  # of a single stack
        "model.source_embedding.tokens.lookup.weight": source,
        "model.target_embedding.tokens.lookup.weight": target,
        "model.projection.weight": target,
        "model.projection.bias": target,
    }
    for name, rows_of_token in former_rows.items():
        weight = weights.get(name)
        if weight is not None:
            # A single row stays as it is, bit for bit.
            weights[name] = torch.stack(
                [
                    weight[rows[0]] if len(rows) == 1 else weight[list(rows)].mean(0)
                    for rows in rows_of_token
                ]
            )
    logger.info("tokens added to the vocabulary of the checkpoint: %d", added)
    model = portable.config.model.sized(len(source), len(target))
    config = replace(portable.config, model=model)
    portable = replace(portable, tokenizer=now.to_state(), config=config)
    return payload | {"state_dict": weights, PORTABLE: portable.to_plain()}


def finetuned_config(config: RunConfig, path: Path | str, *, trusted: bool = False) -> RunConfig:
    """The config of a run that begins with a checkpoint, and has its model and its vocabulary.

    A ``config`` with an attention pattern keeps it; else it has that of the checkpoint.
    ``path`` may be a model of the Hub, ``hf://USER/MODEL``. Raises InputError if it cannot be read,
    or names code and is not trusted.
    """
    path = fetched(path)
    patterns = not has_pattern(config.model)
    shared = settings_of_initial(path, config.task, (), trusted=trusted, patterns=patterns)
    if config.data.features is not None:
        shared.pop("data.features", None)
    return changed_config(config, {**shared, "finetune_from": path})


def settings_of_initial(
    path: Path, task: str, given: Container[str], *, trusted: bool, patterns: bool = True
) -> dict[str, Any]:
    """The dotted keys and values that a run takes from the checkpoint it begins with.

    With ``patterns``, the attention patterns are among them; a run may also have others.

    Empty if the checkpoint is of another kind of task. Raises InputError if it cannot be read, or
    if an untrusted checkpoint names code in a key that is not ``given``.
    """
    with errors_name("finetune_from"):
        payload = read_payload(find_checkpoint(path), tensors=False)
    if not _same_kind(payload, task):
        return {}
    portable = portable_part(payload)
    model = portable.config.model
    tokenizer, tags = settings_of_state(portable.tokenizer)
    # The code of a model is that of its layers, whatever it reads.
    text_model = replace(model, front_end=None, class_token=False, max_source_length=None)
    require_trust(RunConfig(model=text_model), trusted, path, given)
    keys = {
        f"tokenizer.{field.name}": getattr(tokenizer, field.name)
        for field in fields(tokenizer)
        if field.name not in _FREE_OF_TOKENIZER
    }
    keys |= {
        f"model.{key}": getattr(model, key)
        for key in (*weight_keys(model), *(PATTERN_KEYS if patterns else ()))
        if key not in LEARNING_KEYS
    }
    if tags.both_sides:
        keys["data.target_tag"] = "both"
    data = portable.config.data
    if data.source_kind != "text":
        kind = data.source_kind
        keys["data.source_kind"] = kind
        # Vectors of a file, which may be more than any text has subwords.
        keys["data.max_length"] = data.max_length
        keys |= {
            f"data.{kind}.{name}": value
            for name, value in asdict(getattr(data, kind)).items()
            if name not in TRAINING_ONLY[kind]
        }
    if tokenizer.features is not None:
        keys["data.features"] = tokenizer.features
    return keys


def has_pattern(model: Any) -> bool:
    """Whether the settings of a model, typed or not, have a sparse pattern."""
    return model.pattern != "full" or model.decoder_pattern is not None


_FREE_OF_TOKENIZER = ("sampling", "add", "sentinels")
"""Settings of a tokenizer that a new run may choose."""


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_shown, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)
