"""Where metrics go: a CSV file and TensorBoard, both inside the run directory.

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
    """Goes on in the events of a run; where the disk is full it leaves some out.

    Attributes:
        steps: So many are complete: the number of the last one logged, and one.
    """

    steps = 0

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a point to each curve."""
        self.steps = max(self.steps, (step or 0) + 1)
        with self._leaving_out():
            super().log_metrics(self.counted(metrics, step), step)

    @rank_zero_only
    def save(self) -> None:
        """Flush."""
        with self._leaving_out():
            super().save()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Flush and close."""
        with self._leaving_out():
            super().finalize(status)

    @rank_zero_only
    def cut(self, step: int) -> None:
        """Let TensorBoard forget the points from a step on."""
        self.steps = step
        with self._leaving_out():
            writer = self.experiment
            writer.close()
            writer.purge_step = step
            writer._get_file_writer()

    @contextmanager
    def _leaving_out(self) -> Iterator[None]:
        """Go on without what cannot be written."""
        try:
            yield
        except (OSError, ValueError) as error:
            # Lightning makes a ValueError of whatever a point raises.
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError):
                raise
            log.warning("tensorboard: %s; some points are missing", cause.strerror)
            # A writer that has failed once fails for ever: the next point opens another file.
            self._experiment = None


class ContinuedLogs(Callback):
    """Lets a run that goes on have exactly the rows that one without a break has."""

    def __init__(self) -> None:
        self.rows: int | None = None
        self.steps: int | None = None

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Put what is logged so far on the disk, and say how much it is."""
        for logger in trainer.loggers:
            logger.save()
            if isinstance(logger, ContinuedCSVLogger) and trainer.is_global_zero:
                checkpoint["metrics_rows"] = logger.rows
            if isinstance(logger, ContinuedTensorBoard) and trainer.is_global_zero:
                checkpoint["metrics_steps"] = logger.steps

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Remember how much it was."""
        self.rows = checkpoint.get("metrics_rows")
        # One of an earlier version does not say whether a validation after it is among them.
        self.steps = checkpoint.get("metrics_steps", checkpoint["global_step"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget what was logged after the checkpoint."""
        for logger in trainer.loggers:
            if isinstance(logger, EpochLogger):
                logger.epochs = trainer.datamodule.epochs  # type: ignore[attr-defined]
            if isinstance(logger, ContinuedCSVLogger) and self.rows is not None:
                logger.cut(self.rows)
            if isinstance(logger, ContinuedTensorBoard) and self.steps is not None:
                logger.cut(self.steps)


def build_loggers(config: LoggerConfig, folder: Path) -> list[Logger]:
    """The loggers that the config names."""
    loggers: list[Logger] = []
    if config.csv:
        loggers.append(ContinuedCSVLogger(folder))
    if config.tensorboard:
        loggers.append(ContinuedTensorBoard(folder, name="tensorboard", version=""))
    return loggers
