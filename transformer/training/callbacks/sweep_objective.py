"""What a trial of a sweep hands back: the best value of a metric of its validations.

Never that of a test set. It does not know how the sweep chooses the next trial.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.common.errors import InputError

Metric = Literal["val/loss", "val/bleu", "val/chrf", "val/accuracy", "val/perplexity"]

SMALLER_IS_BETTER = ("val/loss", "val/perplexity")


class Objective(Callback):
    """Remembers the best value.

    Attributes:
        best: None before the first validation; NaN before the first that is a number.
    """

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.best: float | None = None

    @property
    def direction(self) -> str:
        """What a sweep has to do with it, in Optuna's words."""
        return "minimize" if self.metric in SMALLER_IS_BETTER else "maximize"

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare.

        Raises:
            InputError: The validation of this task has no such metric.
        """
        logged = {n: float(v) for n, v in trainer.callback_metrics.items() if n.startswith("val/")}
        if self.metric not in logged:
            raise InputError(
                f"objective={self.metric} is not there: a validation of this task has "
                f"{', '.join(sorted(logged))}"
            )
        better = min if self.direction == "minimize" else max
        value = logged[self.metric]
        if self.best is None or math.isnan(self.best):
            self.best = value
        elif not math.isnan(value):
            self.best = better(self.best, value)

    def state_dict(self) -> dict[str, Any]:
        """What a trial that goes on has found before."""
        return {"metric": self.metric, "best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with it, unless it is of another metric."""
        if state_dict["metric"] == self.metric:
            self.best = state_dict["best"]

    def recall(self, payload: Mapping[str, Any]) -> None:
        """Take the best of a trial that had nothing left to train from its last checkpoint."""
        if self.best is None and (state := payload.get("callbacks", {}).get(self.state_key)):
            self.load_state_dict(state)


def check_direction(metric: str, direction: object) -> None:
    """See that the sweep does not look for the worst.

    Args:
        metric: The objective.
        direction: What the sweeper is set to; None where it does not learn.

    Raises:
        InputError: They contradict each other.
    """
    wanted = Objective(metric).direction
    said = getattr(direction, "name", direction)
    if said not in (None, wanted):
        raise InputError(
            f"objective={metric} and hydra.sweeper.direction={said}: set "
            f"hydra.sweeper.direction={wanted}"
        )
