"""The keys under ``callbacks.`` and ``logger.``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from transformer.common.errors import InputError
from transformer.common.schema import Range


@dataclass(frozen=True)
class CallbacksConfig:
    """Validation, averaging, stopping and checkpoints.

    Attributes:
        ema_decay: Decay of the moving average that replaces the weights in validation and test.
        patience: Validations without a better score after which training stops.
        keep_last: Number of validations whose weights are kept for ``average``; below 0 all.
        save_interval: Updates between two writings of ``last.ckpt``, besides those before a
            validation and at the end.
        samples: Validation sentences whose translations are written to the log.
        own: Callbacks of the user, ``MODULE:CLASS`` each, called without arguments.
    """

    ema_decay: Annotated[float, Range(0, below=1)] = 0.0
    patience: Annotated[int, Range(1)] | None = None
    keep_last: int = 5
    save_interval: Annotated[int, Range(1)] | None = 1000
    samples: int = 3
    own: Sequence[str] = ()


@dataclass(frozen=True)
class WandbConfig:
    """Weights & Biases; offline, its record stays in the run directory."""

    project: str = "transformer"
    offline: bool = False


@dataclass(frozen=True)
class MLflowConfig:
    """MLflow; without a ``tracking_uri``, ``mlflow.db`` in the run directory."""

    experiment: str = "transformer"
    tracking_uri: str | None = None

    def __post_init__(self) -> None:
        if re.search("://[^/@]*:[^/@]+@", self.tracking_uri or ""):
            raise InputError(
                "logger.mlflow.tracking_uri has a password, which config.yaml and checkpoints "
                "would keep; set MLFLOW_TRACKING_URI in its place"
            )


@dataclass(frozen=True)
class LoggerConfig:
    """Where metrics are written.

    Attributes:
        csv: Write ``metrics.csv``.
        tensorboard: Write TensorBoard events under ``tensorboard/``.
        wandb, mlflow: Send them to that service.
    """

    csv: bool = True
    tensorboard: bool = True
    wandb: WandbConfig | None = None
    mlflow: MLflowConfig | None = None
