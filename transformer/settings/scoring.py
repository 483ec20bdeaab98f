"""Keys of the commands that score text: what they change of the metrics of a run."""

from dataclasses import dataclass

from transformer.settings.metrics import Better


@dataclass(frozen=True, kw_only=True)
class ScoringKeys:
    """Changes of a run's metrics, as ``MetricsConfig`` explains them; None is as the run scores."""

    tokenize: str | None = None
    lowercase: bool | None = None
    custom: str | None = None
    custom_better: Better | None = None
    comet: str | None = None
    trust: bool = False
    """Read text elsewhere, and run code, that the checkpoint of the run names."""
