"""The keys under ``callbacks.`` and ``logger.``."""

from dataclasses import dataclass

from transformer.common.errors import InputError


@dataclass(frozen=True)
class CallbacksConfig:
    """What to do around the steps.

    Attributes:
        ema_decay: Decay of the moving average of the weights, which then validates, tests and
            translates in place of the weights themselves; 0 keeps none.
        patience: Validations, each after an interval, without a better score (``Criterion``)
            after which training stops; null never stops.
        keep_last: Validations whose weights are kept for ``average``, the newest; below 0 all.
        save_interval: Updates from one writing of ``last.ckpt`` to the next; null writes it where
            a validation begins and where training stops, which is always done, and nowhere else.
        samples: Validation sentences whose translations are written to the log.
    """

    ema_decay: float
    patience: int | None
    keep_last: int
    save_interval: int | None
    samples: int

    def __post_init__(self) -> None:
        if not 0 <= self.ema_decay < 1:
            raise InputError(
                f"callbacks.ema_decay={self.ema_decay} must be at least 0 (no average) and below 1"
            )
        if self.save_interval is not None and self.save_interval < 1:
            raise InputError(
                f"callbacks.save_interval={self.save_interval} must be at least 1, or null"
            )
        if self.patience is not None and self.patience < 1:
            raise InputError(f"callbacks.patience={self.patience} must be at least 1, or null")


@dataclass(frozen=True)
class LoggerConfig:
    """Where metrics go.

    Attributes:
        csv: Write ``metrics.csv``.
        tensorboard: Write TensorBoard events under ``tensorboard/``.
    """

    csv: bool
    tensorboard: bool
