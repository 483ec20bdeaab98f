"""Loggers of metrics: a CSV file and TensorBoard, both in the run directory.

It does not know which metrics there are.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import Logger, TensorBoardLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from transformer.training.callbacks.config import LoggerConfig
from transformer.training.callbacks.metrics_file import ContinuedCSVLogger, EpochLogger

log = logging.getLogger(__name__)


class ContinuedTensorBoard(TensorBoardLogger, EpochLogger):
    """Continues the events of a run; skips points while the disk is full.

    Attributes:
        steps: Complete steps: the number of the last logged one, plus one.
    """

    steps = 0

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a point to each curve."""
        self.steps = max(self.steps, (step or 0) + 1)
        with self._skip_on_full_disk():
            super().log_metrics(self.with_epoch(metrics, step), step)

    @rank_zero_only
    def save(self) -> None:
        """Flush."""
        with self._skip_on_full_disk():
            super().save()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Flush and close."""
        with self._skip_on_full_disk():
            super().finalize(status)

    @rank_zero_only
    def cut(self, step: int) -> None:
        """Delete the points from a step on."""
        self.steps = step
        with self._skip_on_full_disk():
            writer = self.experiment
            writer.close()
            writer.purge_step = step
            writer._get_file_writer()

    @contextmanager
    def _skip_on_full_disk(self) -> Iterator[None]:
        """Log a warning instead of an error if a point cannot be written."""
        try:
            yield
        except (OSError, ValueError) as error:
            # Lightning turns every error of a point into a ValueError.
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError):
                raise
            log.warning("tensorboard: %s; some points are missing", cause.strerror)
            # A writer that has failed once keeps failing: the next point opens another file.
            self._experiment = None


class ContinuedLogs(Callback):
    """Gives a resumed run exactly the rows of a run without a break."""

    def __init__(self) -> None:
        self.rows: int | None = None
        self.steps: int | None = None

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write the metrics to the disk, and save how many there are."""
        for logger in trainer.loggers:
            logger.save()
            if isinstance(logger, ContinuedCSVLogger) and trainer.is_global_zero:
                checkpoint["metrics_rows"] = logger.rows
            if isinstance(logger, ContinuedTensorBoard) and trainer.is_global_zero:
                checkpoint["metrics_steps"] = logger.steps

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore how many there were."""
        self.rows = checkpoint.get("metrics_rows")
        self.steps = checkpoint.get("metrics_steps", checkpoint["global_step"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Delete what was logged after the checkpoint."""
        for logger in trainer.loggers:
            if isinstance(logger, EpochLogger):
                logger.epochs = trainer.datamodule.epochs  # type: ignore[attr-defined]
            if isinstance(logger, ContinuedCSVLogger) and self.rows is not None:
                logger.cut(self.rows)
            if isinstance(logger, ContinuedTensorBoard) and self.steps is not None:
                logger.cut(self.steps)


def build_loggers(config: LoggerConfig, folder: Path) -> list[Logger]:
    """The loggers that the config names."""
    loggers: list[Logger] = [ContinuedCSVLogger(folder)] if config.csv else []
    if config.tensorboard:
        loggers.append(ContinuedTensorBoard(folder, name="tensorboard", version=""))
    return loggers
