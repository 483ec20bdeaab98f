"""Objective of a sweep: the best value of a metric over the validations of a trial."""

from collections.abc import Mapping
from typing import Any

from pytorch_lightning import LightningModule, Trainer

from transformer.common.errors import InputError
from transformer.settings.metrics import METRICS, OTHER_VALUES, Better
from transformer.settings.run import check_objective
from transformer.training.checkpointing import SavedCallback
from transformer.training.model_selection import ModelSelection


class Objective(SavedCallback):
    """Stores the ``best`` value of ``val/NAME``; NaN until a value is a number."""

    def __init__(self, metric: str, custom_better: Better = "higher") -> None:
        check_objective(metric)
        name, self.metric = metric.removeprefix("val/"), metric
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
        if self.best is None and (state := payload.get("callbacks", {}).get(self.state_key)):
            self.load_state_dict(state)


def check_direction(objective: Objective, direction: object) -> None:
    """Raise InputError if the sweeper has a direction that contradicts the objective."""
    wanted = objective.direction
    given = getattr(direction, "name", direction)
    if given not in (None, wanted):
        raise InputError(
            f"objective={objective.metric} and hydra.sweeper.direction={given}: set "
            f"hydra.sweeper.direction={wanted}"
        )
