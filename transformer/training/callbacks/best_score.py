"""Callbacks that follow the best score of validations: early stopping, objective of a sweep."""

import logging
from collections.abc import Mapping
from typing import Any

from pytorch_lightning import LightningModule, Trainer

from transformer.common.errors import InputError
from transformer.settings.metrics import METRICS, OTHER_VALUES, Better
from transformer.settings.run import check_objective
from transformer.training.checkpointing import SavedCallback
from transformer.training.model_selection import ModelSelection

logger = logging.getLogger(__name__)


class Patience(SavedCallback):
    """Stops after validations at the interval, in a row, without a better score.

    Lightning's ``EarlyStopping`` also counts a validation that is not at the interval, and has no
    second value for a tie.
    """

    def __init__(self, selection: ModelSelection, patience: int) -> None:
        self.selection = selection
        self.patience = patience
        self.best: tuple[float, float] | None = None
        self.waited = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop at once if a stopped run is resumed with the same patience."""
        self._stop(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        values = self.selection.values(trainer.callback_metrics)
        if self.selection.better(values, self.best):
            self.best = values
            self.waited = 0
        elif trainer.global_step % trainer.val_check_interval == 0:
            self.waited += 1
        self._stop(trainer)

    def _stop(self, trainer: Trainer) -> None:
        if self.waited >= self.patience:
            logger.info(
                "training ends: %d validations without a better %s than %s (callbacks.patience)",
                self.waited,
                self.selection.metric,
                None if self.best is None else self.best[0],
            )
            trainer.should_stop = True


class Objective(SavedCallback):
    """Stores the ``best`` value of ``val/NAME`` over the validations of a trial of a sweep.

    It is NaN until a value is a number.
    """

    def __init__(self, metric: str, custom_better: Better = "higher") -> None:
        check_objective(metric)
        self.metric = metric
        name = metric.removeprefix("val/")
        known = {**OTHER_VALUES, **{key: kind.better for key, kind in METRICS.items()}}
        better = custom_better if name == "custom" else known[name]
        self.selection = ModelSelection(metric, "min" if better == "lower" else "max")
        self.best: float | None = None

    @property
    def direction(self) -> str:
        """Direction of optimization, in Optuna's terms."""
        return "minimize" if self.selection.mode == "min" else "maximize"

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        value = float(trainer.callback_metrics[self.metric])
        if self.best is None or self.selection.improves(value, self.best):
            self.best = value

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value, unless it is of another metric."""
        if state_dict["metric"] == self.metric:
            super().load_state_dict(state_dict)

    def recall(self, payload: Mapping[str, Any]) -> None:
        """Restore the best value of a finished trial from its last checkpoint."""
        state = payload.get("callbacks", {}).get(self.state_key)
        if self.best is None and state:
            self.load_state_dict(state)


def check_direction(objective: Objective, direction: object) -> None:
    """Raise InputError if the sweeper has a direction that contradicts the objective."""
    # A direction may be an enum or a string.
    name = getattr(direction, "name", direction)
    if name not in (None, objective.direction):
        raise InputError(
            f"objective={objective.metric} and hydra.sweeper.direction={name}: set "
            f"hydra.sweeper.direction={objective.direction}"
        )
