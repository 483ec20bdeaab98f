"""Loggers of metrics: a CSV file, TensorBoard, Weights & Biases; a resumed run continues them."""

import csv
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from transformer.common.files import NoSpaceLeft, open_unlinked, written_whole
from transformer.common.packages import require_package
from transformer.settings.training import LoggerConfig, WandbConfig

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger(__name__)


def build_loggers(
    config: LoggerConfig, folder: Path, run_config: Mapping[str, Any]
) -> list[Logger]:
    """The loggers of the config; raises InputError without the package of a service.

    ``run_config``: the resolved config of the run, for the record at a service.
    """
    loggers: list[Logger] = []
    if config.csv:
        loggers.append(ContinuedCSVLogger(folder))
    if config.tensorboard:
        loggers.append(ContinuedTensorBoard(folder))
    if config.wandb is not None:
        require_package("wandb", "logger=wandb", "wandb")
        build = partial(_wandb_logger, config.wandb, folder)
        loggers.append(RemoteLogger("wandb", build, run_config))
    return loggers


class EpochLogger(Logger):
    """Logs the epoch as a fraction; an epoch of Lightning has no end here."""

    epochs: Callable[[int], float | None] | None = None

    def with_epoch(self, metrics: Mapping[str, float], step: int | None) -> dict[str, float]:
        """The metrics with the ``epoch``, if known, at the end of an update; steps are from 0."""
        if self.epochs is None or step is None:
            return dict(metrics)
        values = {**metrics, "epoch": self.epochs(step + 1)}
        return {name: value for name, value in values.items() if value is not None}


class ContinuedCSVLogger(EpochLogger):
    """Writes ``metrics.csv``: a row for each call, columns in alphabetical order.

    Lightning's ``CSVLogger`` deletes the rows of the run that is resumed.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = folder / "metrics.csv"
        self._saved = 0
        """Rows that are in the file."""
        self._columns: list[str] = []
        """Columns of the file; none: it must be written again."""

    name = version = ""
    """The run directory has one log, without a name or version of its own."""

    @property
    def save_dir(self) -> str:
        return str(self.file.parent)

    log_dir = save_dir

    @cached_property
    def _rows(self) -> list[dict[Any, Any]]:
        """Rows of the file, without a line that a killed process left unfinished."""
        if not self.file.exists():
            return []
        with open_unlinked(self.file, "r", encoding="utf-8", errors="replace") as file:
            return list(csv.DictReader(file.read().split("\n")[:-1]))

    @property
    def rows(self) -> int:
        return len(self._rows)

    def newest(self) -> dict[str, tuple[float, int]]:
        """The last value of each metric, and its update; damaged rows are ignored."""
        values: dict[str, tuple[float, int]] = {}
        for row in self._rows:
            with suppress(KeyError, TypeError, ValueError):
                update = int(row["step"]) + 1
                values |= {name: (float(cell), update) for name, cell in row.items() if cell}
        return values

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._rows.append({**self.with_epoch(metrics, step), "step": step})

    def log_hyperparams(self, *args: Any, **settings: Any) -> None:
        """Write nothing: ``config.yaml`` holds them."""

    @rank_zero_only
    def save(self) -> None:
        if self._saved == self.rows:
            return
        try:
            new = self._rows[self._saved :]
            names = {name for row in new for name in row}
            if self._columns and names <= set(self._columns):
                with open_unlinked(self.file, "a", encoding="utf-8") as file:
                    self._writer(file).writerows(new)
            else:
                # A damaged row may have more cells than there are columns, under the key None.
                known = {name for row in self._rows for name in row if name is not None}
                self._columns = sorted(known)
                with written_whole(self.file) as part, open(part, "w", encoding="utf-8") as file:
                    writer = self._writer(file)
                    writer.writeheader()
                    writer.writerows(self._rows)
            self._saved = self.rows
        except (OSError, NoSpaceLeft) as error:
            self._columns = []
            log.warning("%s: %s; new rows are written later", self.file, error)

    def _writer(self, file: Any) -> "csv.DictWriter[str]":
        return csv.DictWriter(file, self._columns, lineterminator="\n", extrasaction="ignore")

    @rank_zero_only
    def finalize(self, status: str) -> None:
        self.save()

    @rank_zero_only
    def cut(self, rows: int) -> None:
        """Delete the later rows: the run has returned to an earlier update."""
        if self.rows > rows:
            del self._rows[rows:]
            self._saved = -1
            self._columns = []


class ContinuedTensorBoard(EpochLogger):
    """Writes the events of a run; ``steps`` is the number of the last logged step, plus one.

    Lightning's ``TensorBoardLogger`` cannot hide the points after the checkpoint of a resumed run.
    """

    name = version = ""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder / "tensorboard"
        self.steps = 0
        self._purged: int | None = None
        self._writer: SummaryWriter | None = None

    @property
    def save_dir(self) -> str:
        return str(self.folder)

    log_dir = save_dir

    @property
    def experiment(self) -> "SummaryWriter":
        """torch's writer of this process."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.folder), purge_step=self._purged)
        return self._writer

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.steps = max(self.steps, (step or 0) + 1)
        with self._skip_on_full_disk():
            for name, value in self.with_epoch(metrics, step).items():
                self.experiment.add_scalar(name, value, step)

    def log_hyperparams(self, *args: Any, **settings: Any) -> None:
        """Write nothing: ``config.yaml`` holds them."""

    @rank_zero_only
    def save(self) -> None:
        if self._writer is not None:
            with self._skip_on_full_disk():
                self._writer.flush()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self._writer is not None:
            with self._skip_on_full_disk():
                self._writer.close()

    @rank_zero_only
    def cut(self, step: int) -> None:
        """Hide the points from this step on: the run has returned to an earlier update."""
        self.finalize("cut")
        self.steps = self._purged = step
        self._writer = None
        with self._skip_on_full_disk():
            _ = self.experiment

    @contextmanager
    def _skip_on_full_disk(self) -> Iterator[None]:
        """Log a warning instead of an error if a point cannot be written."""
        try:
            yield
        except OSError as error:
            log.warning("tensorboard: %s; some points are missing", error.strerror)
            # A writer that has failed once keeps failing: the next point opens another file.
            self._writer = None


class ContinuedLogs(Callback):
    """Gives a resumed run exactly the rows of an uninterrupted run."""

    rows: int | None = None
    steps: int | None = None

    def on_save_checkpoint(self, trainer: Trainer, _: object, checkpoint: dict[str, Any]) -> None:
        if not trainer.is_global_zero:
            return
        for logger in trainer.loggers:
            logger.save()
            if isinstance(logger, ContinuedCSVLogger):
                checkpoint["metrics_rows"] = logger.rows
            if isinstance(logger, ContinuedTensorBoard):
                checkpoint["metrics_steps"] = logger.steps

    def on_load_checkpoint(self, trainer: Trainer, _: object, checkpoint: dict[str, Any]) -> None:
        self.rows = checkpoint.get("metrics_rows")
        self.steps = checkpoint.get("metrics_steps", checkpoint["global_step"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Delete metrics that were logged after the checkpoint."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        for logger in trainer.loggers:
            if isinstance(logger, EpochLogger):
                # Fine-tuning logs a validation at step 0 before the first update.
                logger.epochs = lambda done: data.epochs(min(done, trainer.global_step))
            if isinstance(logger, ContinuedCSVLogger) and self.rows is not None:
                logger.cut(self.rows)
            if isinstance(logger, ContinuedTensorBoard) and self.steps is not None:
                logger.cut(self.steps)


class RemoteLogger(EpochLogger):
    """Sends metrics to a Lightning logger of a service, built at its first use.

    ``id`` names its record. It ends at its first error; training continues.
    """

    name = version = ""
    save_dir = None

    def __init__(
        self, kind: str, build: Callable[[str | None], Any], config: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.kind = kind
        self.id: str | None = None
        self.known: Mapping[str, tuple[float, int]] = {}
        """The last value of each metric in ``metrics.csv``, and its update."""
        self._build = build
        self._config = config
        self._record: Any = None
        self._failed = False

    @rank_zero_only
    def send(self, action: Callable[[Any], object] = lambda record: None) -> None:
        """Call an action with the logger of Lightning; the first opens the record."""
        if self._failed:
            return
        try:
            if self._record is None:
                is_new = self.id is None
                self._record = self._build(self.id)
                _ = self._record.experiment  # It has no version before.
                self.id = str(self._record.version)
                if is_new:
                    self._record.log_hyperparams(self._config)
            action(self._record)
        except Exception as error:  # Of a service, whatever it is.
            self._failed = True
            reason = " ".join(str(error).split())[:300]
            log.warning("logger=%s stops: %s", self.kind, reason or repr(error))

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Send the metrics of an update that the record does not have."""
        new = {
            name: value
            for name, value in self.with_epoch(metrics, step).items()
            if step is None or name not in self.known or step >= self.known[name][1]
        }
        if new:
            self.send(lambda record: record.log_metrics(new, step))

    def log_hyperparams(self, *args: Any, **settings: Any) -> None:
        """Do nothing: a new record gets the config of the run."""

    def finalize(self, status: str) -> None:
        if self._record is not None:
            self.send(lambda record: record.finalize(status))


class ContinuedRecords(Callback):
    """Keeps the ids of the records in the checkpoint."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for logger in _remote(trainer):
            logger.send()

    def on_save_checkpoint(self, trainer: Trainer, _: object, checkpoint: dict[str, Any]) -> None:
        checkpoint["records"] = {logger.kind: logger.id for logger in _remote(trainer)}

    def on_load_checkpoint(self, trainer: Trainer, _: object, checkpoint: dict[str, Any]) -> None:
        """Restore their ids; ``metrics.csv`` also has the metrics after the checkpoint."""
        records = checkpoint.get("records", {})
        csv_loggers = [x for x in trainer.loggers if isinstance(x, ContinuedCSVLogger)]
        for logger in _remote(trainer):
            if records.get(logger.kind) is not None:
                logger.id = records[logger.kind]
                logger.known = csv_loggers[0].newest() if csv_loggers else {}


def _remote(trainer: Trainer) -> list[RemoteLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, RemoteLogger)]


def finish_records(trainer: Trainer, folder: Path, metrics: Mapping[str, float]) -> None:
    """Send the test scores and files of the run directory; this ends a record."""
    scores = {name: value for name, value in metrics.items() if name.startswith("test")}
    files = [folder / "config.yaml", *sorted(folder.glob("test*.json"))]
    for logger in _remote(trainer):
        if scores:
            logger.send(lambda record: record.log_metrics(scores, trainer.global_step - 1))
        logger.send(partial(_finish_wandb, files=files))


def _wandb_logger(config: WandbConfig, folder: Path, record_id: str | None) -> Logger:
    # train.log has the output. A killed process loses what was not flushed (seconds).
    settings: dict[str, Any] = {"console": "off", "x_transaction_log_flush_interval": 1.0}
    return WandbLogger(
        name=folder.name,
        save_dir=folder,
        project=config.project,
        offline=config.offline,
        id=record_id,
        settings=settings,
    )


def _finish_wandb(record: Any, files: Sequence[Path]) -> None:
    import wandb

    artifact = wandb.Artifact(f"run-{record.version}", "run")
    for file in files:
        artifact.add_file(str(file))
    record.experiment.log_artifact(artifact)
    record.experiment.finish()
