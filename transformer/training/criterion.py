"""Which value of validations chooses: the best checkpoint, the best trial of a sweep."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transformer.common.errors import InputError
from transformer.evaluation.metrics import METRICS, Better, MetricsConfig

WITHOUT_TEXT: dict[str, Better] = {"loss": "lower", "perplexity": "lower", "accuracy": "higher"}
"""Values of a validation that are not text metrics."""


@dataclass(frozen=True)
class Criterion:
    """Compares validations by a value; in a tie, the lower ``val/loss`` is better."""

    metric: str
    mode: Literal["max", "min"]

    def values(self, metrics: Mapping[str, Any]) -> tuple[float, float]:
        return float(metrics[self.metric]), float(metrics["val/loss"])

    def better(self, values: tuple[float, float], than: tuple[float, float] | None) -> bool:
        """Whether a validation is better than another, or is the first; one of NaN never is."""
        if than is not None and values[0] == than[0]:
            return _is_better(values[1], than[1], "min")
        return self.improves(values[0], than and than[0])

    def improves(self, score: float, than: float | None) -> bool:
        """Whether a score is better than another, or is the first; NaN never is."""
        return _is_better(score, than, self.mode)


def _is_better(value: float, than: float | None, mode: Literal["max", "min"]) -> bool:
    if math.isnan(value):
        return False
    if than is None or math.isnan(than):
        return True
    return value > than if mode == "max" else value < than


def text_criterion(metrics: MetricsConfig) -> Criterion:
    """The text metric that chooses."""
    name = metrics.choose
    return Criterion(f"val/{name}", "max" if metrics.better(name) == "higher" else "min")


def check_objective(metric: str) -> None:
    """Raise InputError unless a validation could have this metric."""
    known = [f"val/{name}" for name in (*WITHOUT_TEXT, *METRICS)]
    if metric not in known:
        raise InputError(f"objective={metric} must be {' or '.join(known)}")
