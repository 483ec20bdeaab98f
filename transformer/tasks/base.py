"""Interface of a task: its data, its training step, and its scores.

All else is the same for every task (runs/train.py). It does not know which tasks there are.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from pytorch_lightning import Callback
from rich.table import Table

from transformer.common.errors import InputError
from transformer.data.modules.base import BatchModule
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.evaluation.metrics import Score
from transformer.model.checkpoint.checkpoint import portable_part
from transformer.model.config import ModelConfig
from transformer.training.checkpointing.checkpoint_io import Criterion
from transformer.training.config import RunConfig
from transformer.training.step.update_module import UpdateModule


class Evaluation(NamedTuple):
    """Result of scoring a split."""

    scores: Sequence[Score]
    hypotheses: Sequence[str] | None
    """One per sentence; None if the task produces no text."""
    tables: Sequence[Table] = ()
    """More results to show."""


class Task(ABC):
    """One task over one config.

    Attributes:
        criterion: Chooses the best checkpoint at validation.
        data: Batches and tokenizer.
    """

    criterion: Criterion
    data: BatchModule

    @abstractmethod
    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        """Check the config; no text is read yet.

        Args:
            config: The run.
            tokenizer: Tokenizer of the checkpoint that the run begins with, if any.

        Raises:
            InputError: The task does not support the config.
        """

    @property
    @abstractmethod
    def module(self) -> UpdateModule:
        """The model and its training step, built at the first call, after the data."""

    @abstractmethod
    def callbacks(self) -> Sequence[Callback]:
        """Callbacks of the task at validation."""

    @abstractmethod
    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        """Load a model onto a device; return a function that scores a split by name.

        Raises:
            InputError: There is no checkpoint, or it cannot be read.
        """


def update_settings(config: RunConfig, model: ModelConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """The arguments of an ``UpdateModule`` besides the model."""
    return {
        "loss": config.loss,
        "optimizer": config.optimizer,
        "schedule": config.schedule,
        "recovery": config.recovery,
        "clip": config.trainer["gradient_clip_val"],
        "seed": config.seed,
        "portable": portable_part(model, tokenizer.to_state(), dict(config.resolved)),
    }


M = TypeVar("M", bound=UpdateModule)


def prepared(module: M, config: RunConfig) -> M:
    """The module, with activation checkpointing if the config says so."""
    if config.gradient_checkpointing:
        module.recompute_layers()
    return module


_DECODER_KEYS = ("decoder_layers", "decoder_pattern", "target_token_dropout")
_TRANSLATION_DATA = ("corpora", "target_tag", "documents", "streaming")


def sentence_positions(config: RunConfig) -> int | None:
    """Maximum length of a sentence with learned positions; None without."""
    return config.model["max_length"] if config.model["positions"] == "learned" else None


def check_single_stack(
    config: RunConfig, experiment: str, *, resumed: bool, unused: Mapping[str, Any]
) -> None:
    """Check that a task with one stack and one text is given nothing of a translator.

    Args:
        config: The run.
        experiment: One that trains such a stack, for the message.
        resumed: Whether the run goes on; settings that the data ignores are then accepted.
        unused: More keys that the task does not use, with their values; false values are unset.

    Raises:
        InputError: Settings are given that the task does not use.
    """
    keys = {
        **{f"model.{key}": config.model[key] for key in _DECODER_KEYS},
        "loss.alignment_weight": config.loss.alignment_weight,
        "loss.consistency": config.loss.consistency if config.loss.consistency != "none" else None,
        **{f"data.{key}": getattr(config.data, key) for key in _TRANSLATION_DATA},
        **unused,
    }
    if not resumed:
        keys["data.alignment"] = config.data.alignment
        keys["tokenizer.joint"] = None if config.tokenizer.joint else "false"
    given = " ".join(f"{key}={value}" for key, value in keys.items() if value)
    if given:
        raise InputError(
            f"task={config.task} has one stack and one text and does not use {given}; leave that "
            f"out, or begin with experiment={experiment}"
        )
