"""The choice of the best checkpoint, and the best trial of a sweep, by a value of validations."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transformer.settings.metrics import MetricsConfig


@dataclass(frozen=True)
class ModelSelection:
    """Compares validations by a value; in a tie, the lower ``val/loss`` is better."""

    metric: str
    mode: Literal["max", "min"]

    def values(self, metrics: Mapping[str, Any]) -> tuple[float, float]:
        return float(metrics[self.metric]), float(metrics["val/loss"])

    def better(self, values: tuple[float, float], than: tuple[float, float] | None) -> bool:
        """Whether a validation is better than another, or is the first; one of NaN never is."""
        if than is not None and values[0] == than[0]:
            return _is_better(values[1], than[1], "min")
        return self.improves(values[0], None if than is None else than[0])

    def improves(self, score: float, than: float | None) -> bool:
        """Whether a score is better than another, or is the first; NaN never is."""
        return _is_better(score, than, self.mode)


def _is_better(value: float, than: float | None, mode: Literal["max", "min"]) -> bool:
    if math.isnan(value):
        return False
    if than is None or math.isnan(than):
        return True
    return value > than if mode == "max" else value < than


def best_by_text(metrics: MetricsConfig) -> ModelSelection:
    """The text metric that chooses."""
    name = metrics.choose
    return ModelSelection(f"val/{name}", "max" if metrics.better(name) == "higher" else "min")
