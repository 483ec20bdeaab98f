"""The keys under ``logger.``."""

from dataclasses import dataclass

from transformer.common.schema import Settings


@dataclass(frozen=True)
class WandbConfig(Settings, group="logger.wandb"):
    """Weights & Biases; offline, its record stays in the run directory."""

    project: str = "transformer"
    offline: bool = False


@dataclass(frozen=True)
class LoggerConfig(Settings, group="logger"):
    """Outputs of the metrics: ``metrics.csv``, ``tensorboard/``, and a service."""

    csv: bool = True
    tensorboard: bool = True
    wandb: WandbConfig | None = None
