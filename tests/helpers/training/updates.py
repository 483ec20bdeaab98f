"""A translator to train, with plain settings, and the trainer of a test."""

from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer

from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.losses import loss_config
from transformer.checkpoint.validation import Portable
from transformer.common.schema import typed
from transformer.model.transformer import Transformer
from transformer.settings.optimizer import OptimizerConfig
from transformer.settings.recovery import RecoveryConfig
from transformer.settings.run import RunConfig
from transformer.settings.schedule import ScheduleConfig
from transformer.tasks.translation_module import TranslationModule


def recovery_config(**changes: Any) -> RecoveryConfig:
    """As conf/ has it; ``changes`` replace fields."""
    return typed(RecoveryConfig, changes, "recovery")


def module_settings(**changes: Any) -> dict[str, Any]:
    """The arguments of an ``UpdateModule`` besides the model; ``changes`` replace some."""
    settings: dict[str, Any] = {
        "loss": loss_config(),
        "optimizer": OptimizerConfig("adam", 1e-3, (0.9, 0.98), 1e-9, 0.0),
        "schedule": ScheduleConfig("constant", 0),
        "recovery": recovery_config(),
        "clip": None,
        "seed": 1,
        "portable": Portable(RunConfig(), {}),
    }
    return settings | changes


def translation_module(model: Transformer | None = None, **changes: Any) -> TranslationModule:
    """A tiny translator and its training step."""
    return TranslationModule(model or tiny_transformer(), **module_settings(**changes))


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
