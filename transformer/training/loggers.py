"""Where metrics go: a CSV file and TensorBoard, both inside the run directory.

It does not know which metrics there are.
"""

import csv
from pathlib import Path

from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from transformer.training.config import LoggerConfig


class ContinuedCSVLogger(CSVLogger):
    """Goes on in the ``metrics.csv`` of a resumed run; Lightning's own starts it anew."""

    def __init__(self, folder: Path) -> None:
        file = folder / ExperimentWriter.NAME_METRICS_FILE
        before = file.read_text() if file.exists() else ""
        super().__init__(folder, name="", version="")
        writer = self.experiment
        if before and isinstance(writer, ExperimentWriter):
            file.write_text(before)
            writer.metrics_keys = next(csv.reader(before.splitlines()))


def build_loggers(config: LoggerConfig, folder: Path) -> list[Logger]:
    """The loggers that the config names."""
    loggers: list[Logger] = []
    if config.csv:
        loggers.append(ContinuedCSVLogger(folder))
    if config.tensorboard:
        loggers.append(TensorBoardLogger(folder, name="tensorboard", version=""))
    return loggers
