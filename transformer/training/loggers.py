"""Where metrics go: a CSV file and TensorBoard, both inside the run directory.

It does not know which metrics there are.
"""

import csv
import errno
import io
import logging
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import Logger, TensorBoardLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from transformer.files import NoSpaceLeft, open_unlinked, written_whole
from transformer.training.config import LoggerConfig

log = logging.getLogger(__name__)


class ContinuedCSVLogger(Logger):
    """Writes ``metrics.csv``: a row for each call, columns in alphabetical order.

    A run that goes on goes on in its file. Rows are on the disk when ``save`` returns; where the
    disk is full they are kept for the next time.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = folder / "metrics.csv"
        self._columns: list[str] = []
        self._written = 0
        self._waiting: list[dict[str, Any]] = []
        self._opened = False

    @property
    def name(self) -> str:
        """Lightning asks for it; the run directory is the name."""
        return ""

    @property
    def version(self) -> str:
        """Lightning asks for it; there is one of a run directory."""
        return ""

    @property
    def save_dir(self) -> str:
        """The run directory."""
        return str(self.file.parent)

    @property
    def log_dir(self) -> str:
        """Where the file lies."""
        return self.save_dir

    @property
    def rows(self) -> int:
        """Rows so far."""
        self._open()
        return self._written + len(self._waiting)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        self._open()
        self._waiting.append({**metrics, "step": step})

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kw: Any) -> None:
        """Leave that to ``config.yaml``."""

    @rank_zero_only
    def save(self) -> None:
        """Write what is not written yet."""
        if not self._waiting:
            return
        columns = sorted({*self._columns, *(name for row in self._waiting for name in row)})
        try:
            if columns == self._columns:
                _append(self.file, _text(self._waiting, columns, header=False))
            else:
                before = _read(self.file)[1]
                _replace(self.file, _text([*before, *self._waiting], columns, header=True))
        except (OSError, NoSpaceLeft) as error:
            log.warning("%s: %s; its rows wait", self.file, error)
            return
        self._written += len(self._waiting)
        self._columns, self._waiting = columns, []

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write what is not written yet."""
        self.save()

    @rank_zero_only
    def cut(self, rows: int) -> None:
        """Forget the rows after the first few: the run has gone back to before them."""
        self._open()
        if self._written > rows:
            header_and_rows = self.file.read_bytes().splitlines(keepends=True)[: rows + 1]
            _cut(self.file, sum(map(len, header_and_rows)))
            self._written = rows

    def _open(self) -> None:
        if not self._opened:
            self._columns, rows = _read(self.file)
            self._written, self._opened = len(rows), True
            if self.file.exists():
                _cut(self.file, self.file.read_bytes().rfind(b"\n") + 1)


class ContinuedTensorBoard(TensorBoardLogger):
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
            super().log_metrics(metrics, step)

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


def _read(file: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and whole rows; a last line without an end is of a process that was killed."""
    if not file.exists():
        return [], []
    whole = file.read_text(encoding="utf-8").rpartition("\n")[0]
    reader = csv.DictReader(io.StringIO(whole))
    return list(reader.fieldnames or []), list(reader)


def _text(rows: list[dict[str, Any]], columns: list[str], *, header: bool) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _append(file: Path, text: str) -> None:
    """Add the text, or nothing of it."""
    data = text.encode()
    with open_unlinked(file, "ab", buffering=0) as stream:
        size = stream.tell()
        try:
            if stream.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(stream.fileno())
        except OSError:
            os.ftruncate(stream.fileno(), size)
            raise


def _cut(file: Path, size: int) -> None:
    with open_unlinked(file, "r+b") as stream:
        stream.truncate(size)


def _replace(file: Path, text: str) -> None:
    with written_whole(file) as part:
        part.write_text(text, encoding="utf-8")
