"""The record of a run at Weights & Biases; it ends at its first error."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from transformer.common.errors import require_package
from transformer.settings.training import LoggerConfig, WandbConfig
from transformer.training.callbacks.loggers import ContinuedCSVLogger, EpochLogger

log = logging.getLogger(__name__)


class RemoteLogger(EpochLogger):
    """Sends metrics to a Lightning logger, built at its first use; ``id`` names its record."""

    name = version = ""
    save_dir = None

    def __init__(
        self, kind: str, build: Callable[[str | None], Any], config: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.kind, self._build, self._config = kind, build, config
        self.id: str | None = None
        self.known: Mapping[str, tuple[float, int]] = {}
        self._record: Any = None
        self._failed = False

    @rank_zero_only
    def send(self, action: Callable[[Any], object] = lambda record: None) -> None:
        """Call an action with the logger of Lightning; the first opens the record."""
        if self._failed:
            return
        try:
            if self._record is None:
                self._record, new = self._build(self.id), self.id is None
                _ = self._record.experiment  # It has no version before.
                self.id = str(self._record.version)
                if new:
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
        checkpoint["records"] = {one.kind: one.id for one in _remote(trainer)}

    def on_load_checkpoint(self, trainer: Trainer, _: object, checkpoint: dict[str, Any]) -> None:
        """Restore their ids; ``metrics.csv`` also has the metrics after the checkpoint."""
        logged = [one.newest() for one in trainer.loggers if isinstance(one, ContinuedCSVLogger)]
        for logger in _remote(trainer):
            if (found := checkpoint.get("records", {}).get(logger.kind)) is not None:
                logger.id, logger.known = found, logged[0] if logged else {}


def _remote(trainer: Trainer) -> list[RemoteLogger]:
    return [one for one in trainer.loggers if isinstance(one, RemoteLogger)]


def finish_records(trainer: Trainer, folder: Path, metrics: Mapping[str, float]) -> None:
    """Send the test scores and files of the run directory; this ends a record."""
    scores = {name: value for name, value in metrics.items() if name.startswith("test")}
    files = [folder / "config.yaml", *sorted(folder.glob("test*.json"))]
    for logger in _remote(trainer):
        if scores:
            logger.send(lambda record: record.log_metrics(scores, trainer.global_step - 1))
        logger.send(partial(_finish_wandb, files=files))


def build_remote_loggers(
    config: LoggerConfig, folder: Path, resolved: Mapping[str, Any]
) -> list[Logger]:
    """The service loggers of the config; raises InputError without their package."""
    if config.wandb is None:
        return []
    require_package("wandb", "logger=wandb", "wandb")
    return [RemoteLogger("wandb", partial(_wandb, config.wandb, folder), resolved)]


def _wandb(config: WandbConfig, folder: Path, found: str | None) -> Logger:
    where = (folder.name, folder)
    # train.log has the output. A killed process loses what was not flushed (seconds).
    settings = {"console": "off", "x_transaction_log_flush_interval": 1.0}
    given: dict[str, Any] = {"project": config.project, "settings": settings}
    return WandbLogger(*where, offline=config.offline, id=found, **given)


def _finish_wandb(record: Any, files: Sequence[Path]) -> None:
    import wandb

    artifact = wandb.Artifact(f"run-{record.version}", "run")
    for file in files:
        artifact.add_file(str(file))
    record.experiment.log_artifact(artifact)
    record.experiment.finish()
