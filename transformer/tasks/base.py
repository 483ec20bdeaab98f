"""What a run must know of a task: its data, its training step, and how it is scored.

All else is the same for every task (run.py). It does not know which tasks there are.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from pytorch_lightning import Callback
from rich.table import Table

from transformer.data.modules.base import BatchModule
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.evaluation.metrics import Score
from transformer.model.checkpoint.checkpoint import portable_part
from transformer.model.config import ModelConfig
from transformer.training.checkpointing.checkpoint_io import Criterion
from transformer.training.config import RunConfig
from transformer.training.step.update_module import UpdateModule


class Evaluation(NamedTuple):
    """What came of a split."""

    scores: Sequence[Score]
    hypotheses: Sequence[str] | None
    """One for each sentence, where the task makes any."""
    tables: Sequence[Table] = ()
    """What people want to see besides the scores."""


class Task(ABC):
    """One task over one config.

    Attributes:
        criterion: What validation chooses the best checkpoint by.
        data: Batches and tokenizer.
    """

    criterion: Criterion
    data: BatchModule

    @abstractmethod
    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        """Set out; nothing is read yet.

        Args:
            config: The run.
            tokenizer: That of the checkpoint from which the run goes on, if it does.

        Raises:
            InputError: The config says what the task cannot do.
        """

    @property
    @abstractmethod
    def module(self) -> UpdateModule:
        """The model and its training step; made at the first call, when the data is prepared."""

    @abstractmethod
    def callbacks(self) -> Sequence[Callback]:
        """What else to do at a validation."""

    @abstractmethod
    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        """Load a model onto a device; return what scores it on a split by name.

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
    """The module, set to save memory if the run wants that."""
    if config.gradient_checkpointing:
        module.recompute_layers()
    return module


def sentence_positions(config: RunConfig) -> int | None:
    """The positions that a stack has for a sentence; None: as many as need be."""
    return config.model["max_length"] if config.model["positions"] == "learned" else None


def decoder_objections(config: RunConfig, experiment: str) -> Iterator[str]:
    """What is asked for that only a decoder that attends to a source has, in a task of one stack.

    Args:
        config: The run.
        experiment: One that trains such a stack, for the user to begin with.
    """
    without = {
        "model.decoder_layers": (config.model["decoder_layers"], 0),
        "model.decoder_pattern": (config.model["decoder_pattern"], None),
        "model.target_token_dropout": (config.model["target_token_dropout"], 0.0),
        "loss.alignment_weight": (config.loss.alignment_weight, 0.0),
    }
    for key, (value, none) in without.items():
        if value != none:
            yield (
                f"{key}={value} is of a decoder that attends to a source, but task={config.task} "
                f"has one stack, of model.encoder_layers; set {key}={'null' if none is None else 0}"
                f", or begin with experiment={experiment}"
            )


def translation_objections(config: RunConfig) -> Iterator[str]:
    """What is asked for that only translation has, in a task that reads one text."""
    given = {
        "data.corpora": config.data.corpora,
        "data.target_tag": config.data.target_tag,
        "data.documents": config.data.documents,
        "loss.consistency": config.loss.consistency != "none",
    }
    for key, value in given.items():
        if value:
            yield f"{key} is for task=translation, not task={config.task}; leave it out"


def second_side_objections(config: RunConfig) -> Iterator[str]:
    """What is asked for, where a run begins, that only two sides of text have.

    A run that goes on may have been let begin with it: it does no harm.
    """
    given = {
        f"data.alignment={config.data.alignment}": (config.data.alignment, "data.alignment=null"),
        "tokenizer.joint=false": (not config.tokenizer.joint, "tokenizer.joint=true"),
    }
    for key, (asked, remedy) in given.items():
        if asked:
            task = f"task={config.task} reads one text"
            yield f"{key} is for source and target, but {task}; set {remedy}"
