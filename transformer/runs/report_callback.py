"""The callback that records a run and writes its report."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.common.errors import InputError
from transformer.reports.page import REPORT
from transformer.runs.report_values import run_report, write_report
from transformer.runs.run_json import RECORD, record_end, record_start
from transformer.settings.run import RunConfig
from transformer.training.trainer import end_reason

logger = logging.getLogger(__name__)


class RunReport(Callback):
    """Records a run, and writes its report where the block ends, or after each validation."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.config, self.folder = config, folder
        self.changed = False
        """Whether there is something new to report."""
        self.reason = ""
        """Why training has ended, if it has begun."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the start; after a divergence training starts again, which is not recorded."""
        if trainer.is_global_zero and not self.changed:
            self.changed = True
            with _warning(RECORD):
                record_start(self.folder, trainer)
                self.reason = "unknown"

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.config.report == "live" and trainer.is_global_zero:
            self._write("training")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.reason = self.reason and end_reason(trainer, self.config)[1]

    def __enter__(self) -> "RunReport":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.reason:
            with _warning(RECORD):
                ended = self.reason if error is None else str(error) or type(error).__name__
                record_end(self.folder, ended)
        if self.changed and self.config.report != "none":
            self._write("stopped" if error else None)

    def _write(self, state: str | None) -> None:
        with _warning(f"{REPORT}.html", f"; transformer report {self.folder} writes it"):
            write_report(self.folder, run_report([self.folder], state))


@contextmanager
def _warning(file: str, advice: str = "") -> Iterator[None]:
    """Log an error of writing a file: the run matters more than its report."""
    try:
        yield
    except Exception as error:
        bug = not isinstance(error, InputError | OSError)
        logger.warning("%s is not written: %s%s", file, error, advice, exc_info=bug)
