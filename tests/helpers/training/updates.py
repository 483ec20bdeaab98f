"""A translator to train, with plain settings, and the trainer of a test."""

from functools import cache
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer

from tests.helpers.model.models import tiny_transformer
from transformer.common.schema import typed
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.single_stack import SingleStack
from transformer.model.transformer import Transformer
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import TokenizerConfig
from transformer.settings.training import (
    LossConfig,
    OptimizerConfig,
    RecoveryConfig,
    ScheduleConfig,
    TrainerConfig,
)
from transformer.tasks.translation import TranslationModule


def loss_config(**changes: Any) -> LossConfig:
    """Plain label smoothing; ``changes`` replace fields."""
    return typed(LossConfig, {"chunk": 0} | changes, "loss")


def recovery_config(**changes: Any) -> RecoveryConfig:
    """As conf/ has it; ``changes`` replace fields."""
    return typed(RecoveryConfig, changes, "recovery")


def module_settings(
    model: Transformer | SingleStack, clip: float | None = None, **changes: Any
) -> dict[str, Any]:
    """The arguments of an ``UpdateModule``; ``changes`` replace groups of its config."""
    settings: dict[str, Any] = {
        "loss": loss_config(),
        "optimizer": OptimizerConfig("adam", 1e-3, (0.9, 0.98), 1e-9, 0.0),
        "schedule": ScheduleConfig("constant", 0),
        "recovery": recovery_config(),
        "trainer": TrainerConfig(gradient_clip_val=clip, compile="none"),
        # Otherwise adapters would be refused.
        "finetune_from": Path("run") if model.config.lora_rank else None,
    }
    return {
        "config": RunConfig(**settings | changes),
        "tokenizer": any_tokenizer(),
        "model": model,
    }


@cache
def any_tokenizer() -> Tokenizer:
    """The fastest to train."""
    config = TokenizerConfig(algorithm="char", vocab_size=None)
    return Tokenizer.train(config, lambda: [("a", "b")])


def translation_module(model: Transformer | None = None, **changes: Any) -> TranslationModule:
    """A tiny translator and its training step."""
    return TranslationModule(**module_settings(model or tiny_transformer(), **changes))


def quiet_trainer(folder: Path, **options: Any) -> Trainer:
    """One that writes and says nothing, on one CPU unless ``options`` say otherwise."""
    silent = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
        "check_val_every_n_epoch": None,
        "max_epochs": -1,
        "default_root_dir": folder,
    }
    return Trainer(**(silent | options))
