"""Callbacks at a validation: averaged weights, early stopping, the objective of a sweep."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import EMAWeightAveraging
from torch import Tensor, nn

from transformer.common.errors import InputError
from transformer.evaluation.metrics import METRICS, Better
from transformer.training.checkpointing.checkpoint_io import Criterion
from transformer.training.checkpointing.saved_state import SavedCallback
from transformer.training.step.outcome import Outcome

logger = logging.getLogger(__name__)


class Patience(SavedCallback):
    """Stops training after some validations in a row without a better score.

    A validation at the end of a run, off the interval, does not count: a longer run has none there.
    """

    def __init__(self, criterion: Criterion, patience: int) -> None:
        self.criterion, self.patience = criterion, patience
        self.best: tuple[float, float] | None = None
        self.waited = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop at once if a stopped run is resumed with no more patience."""
        self._stop(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count the validation; stop if patience is over."""
        values = self.criterion.values(trainer.callback_metrics)
        if self.criterion.better(values, self.best):
            self.best, self.waited = values, 0
        elif trainer.global_step % trainer.val_check_interval == 0:
            self.waited += 1
        self._stop(trainer)

    def _stop(self, trainer: Trainer) -> None:
        if self.waited >= self.patience:
            logger.info(
                "training ends: %d validations without a better %s than %s (callbacks.patience)",
                *(self.waited, self.criterion.metric, self.best and self.best[0]),
            )
            trainer.should_stop = True


class MovingAverage(EMAWeightAveraging):
    """An exponential moving average of the weights, which validates in their place.

    Buffers are not averaged: they would drift by rounding. Skipped updates do not count.
    """

    def __init__(self, decay: float) -> None:
        super().__init__(decay=decay, use_buffers=False)
        self.decay = decay

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Keep the average on the device on which the weights will be."""
        self._device = trainer.strategy.root_device
        super().setup(trainer, pl_module, stage)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update the average."""
        outcome: Outcome = outputs["outcome"]
        if trainer.strategy.root_device.type != "cpu":
            self._follow(pl_module, outcome.applied)
            self._latest_update_step = trainer.global_step
        elif outcome.numbers.good:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    @torch.no_grad()
    def _follow(self, module: nn.Module, applied: Bool[Tensor, ""]) -> None:
        """Update the average if the weights were updated, which the host need not know."""
        assert self._average_model is not None
        count = self._average_model.n_averaged
        # The first average is the weights themselves.
        weight = applied * torch.where(count == 0, 1.0, 1 - self.decay)
        average: list[Tensor] = list(self._average_model.parameters())
        weights: list[Tensor] = list(module.parameters())
        difference = torch._foreach_sub(weights, average)
        torch._foreach_mul_(difference, weight)
        torch._foreach_add_(average, difference)
        count += applied

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do not swap them: the last checkpoint, still to be written, holds both."""


_WITHOUT_TEXT: dict[str, Better] = {"loss": "lower", "perplexity": "lower", "accuracy": "higher"}
"""Values of a validation that are no metrics of text."""


class Objective(SavedCallback):
    """Remembers the ``best`` value of ``val/NAME``; NaN before the first that is a number."""

    def __init__(self, metric: str, custom_better: Better = "higher") -> None:
        check_objective(metric)
        name, self.metric = metric.removeprefix("val/"), metric
        known = {**_WITHOUT_TEXT, **{key: kind.better for key, kind in METRICS.items()}}
        better = custom_better if name == "custom" else known[name]
        self.criterion = Criterion(metric, "min" if better == "lower" else "max")
        self.best: float | None = None

    @property
    def direction(self) -> str:
        """Direction of optimisation, as Optuna names it."""
        return "minimize" if self.criterion.mode == "min" else "maximize"

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Update the best value."""
        value = float(trainer.callback_metrics[self.metric])
        if self.criterion.improves(value, self.best):
            self.best = value

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value, unless it is of another metric."""
        if state_dict["metric"] == self.metric:
            super().load_state_dict(state_dict)

    def recall(self, payload: Mapping[str, Any]) -> None:
        """Restore the best value of a finished trial from its last checkpoint."""
        if self.best is None and (state := payload.get("callbacks", {}).get(self.state_key)):
            self.load_state_dict(state)


def check_objective(metric: str) -> None:
    """Raise InputError unless a validation could have this metric."""
    known = [f"val/{name}" for name in (*_WITHOUT_TEXT, *METRICS)]
    if metric not in known:
        raise InputError(f"objective={metric} must be {' or '.join(known)}")


def check_direction(objective: Objective, direction: object) -> None:
    """Raise InputError if the sweeper has a direction that contradicts the objective."""
    wanted = objective.direction
    given = getattr(direction, "name", direction)
    if given not in (None, wanted):
        raise InputError(
            f"objective={objective.metric} and hydra.sweeper.direction={given}: set "
            f"hydra.sweeper.direction={wanted}"
        )
