"""The keys under ``logger.``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WandbConfig:
    """Weights & Biases; offline, its record stays in the run directory."""

    project: str = "transformer"
    offline: bool = False


@dataclass(frozen=True)
class LoggerConfig:
    """Outputs of the metrics: ``metrics.csv``, ``tensorboard/``, and a service."""

    csv: bool = True
    tensorboard: bool = True
    wandb: WandbConfig | None = None
