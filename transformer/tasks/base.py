"""Interface of a task: its data, its training step, and its scores."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from transformer.common.errors import InputError
from transformer.data.datamodules.base import BatchModule
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.evaluation.metrics import Score
from transformer.settings.data import DenoisingConfig
from transformer.settings.run import RunConfig
from transformer.training.model_selection import ModelSelection
from transformer.training.update import UpdateModule

if TYPE_CHECKING:
    from transformer.quality.failures.monitor import Failures


class Evaluation(NamedTuple):
    """Result of scoring a split."""

    scores: Sequence[Score]
    hypotheses: Sequence[str] | None
    """One per sentence; None if the task produces no text."""
    failures: "Failures | None" = None
    """Flags of the hypotheses and references; None for other tasks than translation."""


class Task(ABC):
    """One task over one config; ``data`` are its batches and tokenizer."""

    data: BatchModule

    @abstractmethod
    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        """Check the config; no text is read yet. The tokenizer is that of an initial checkpoint."""

    @staticmethod
    @abstractmethod
    def model_selection(config: RunConfig) -> ModelSelection:
        """What chooses the best checkpoint at validation."""

    @classmethod
    def validation_metrics(cls, config: RunConfig) -> list[str]:
        """What each validation logs; of several corpora it logs more."""
        return ["val/loss", cls.model_selection(config).metric]

    @property
    @abstractmethod
    def module(self) -> UpdateModule:
        """The model and its training step, built at the first call, after the data."""

    @abstractmethod
    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        """Load a checkpoint onto a device; return a function that scores a split by name."""


D = TypeVar("D", bound=BatchModule)

_DECODER_KEYS = (
    "decoder_layer",
    "decoder_layers",
    "decoder_pattern",
    "decoder_start",
    "max_source_length",
    "target_token_dropout",
)
TRANSLATION_DATA = ("corpora", "target_tag", "documents", "streaming")


def check_no_noise(config: RunConfig) -> None:
    """Raise an InputError if a task other than denoising has its settings."""
    if config.data.denoising != DenoisingConfig():
        raise InputError(f"data.denoising is not read with task={config.task}; leave it out")


def single_stack_data(
    kind: Callable[..., D],
    config: RunConfig,
    tokenizer: Tokenizer | None,
    *,
    experiment: str,
    unused: Mapping[str, Any],
) -> D:
    """The data of a task with one stack and one text; InputError if it does not use a setting."""
    check_no_noise(config)
    consistency = config.loss.consistency
    keys = {f"model.{key}": getattr(config.model, key) for key in _DECODER_KEYS}
    keys["loss.alignment_weight"] = config.loss.alignment_weight
    keys["loss.consistency"] = consistency if consistency != "none" else None
    keys |= {f"data.{key}": getattr(config.data, key) for key in TRANSLATION_DATA}
    keys["augmentation"] = "robust" if config.augmentation.active else None
    keys |= unused
    if tokenizer is None:
        keys["data.alignment"] = config.data.alignment
        keys["tokenizer.joint"] = None if config.tokenizer.joint else "false"
    unused_keys = " ".join(f"{key}={value}" for key, value in keys.items() if value)
    if unused_keys:
        raise InputError(
            f"task={config.task} has one stack and one text and does not use {unused_keys}; "
            f"leave that out, or begin with experiment={experiment}"
        )
    return kind(config, tokenizer)
