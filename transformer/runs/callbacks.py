"""Callbacks of a run: its report, and checks of its text and outputs."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.common.errors import InputError
from transformer.common.files import NoSpaceLeft
from transformer.quality.examination import log_faults
from transformer.quality.failures.flags import Detector
from transformer.quality.failures.monitor import SentenceFlags, find_failures
from transformer.quality.failures.thresholds import SAMPLE, Thresholds, lowest_usual
from transformer.reports.page import REPORT
from transformer.runs.directory import RECORD, record_end, record_start
from transformer.runs.report import run_report, write_report
from transformer.settings.data import DataConfig
from transformer.settings.run import RunConfig
from transformer.tasks.translation import TranslateValidation, ValidationOutputs
from transformer.training.checkpointing import BestCheckpoint
from transformer.training.trainer import end_reason

logger = logging.getLogger(__name__)


class RunReport(Callback):
    """Records a run, and writes its report where the block ends, or after each validation."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.config = config
        self.folder = folder
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
        if self.reason:
            self.reason = end_reason(trainer, self.config)[1]

    def __enter__(self) -> "RunReport":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.reason:
            with _warning(RECORD):
                reason = self.reason
                if error is not None:
                    reason = str(error) or type(error).__name__
                record_end(self.folder, reason)
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


class QualityChecks(Callback):
    """Checks the text of a translation before training, and the outputs of each validation.

    Faults of the text are lines of the log (docs/doctor.md). Failures of the outputs of a
    `TranslateValidation` are logged as ``val/failures/FLAG``, in percent, and the thresholds for
    new text are written into the run directory, with ``best.ckpt`` (docs/failures.md).
    """

    def __init__(self, data: DataConfig) -> None:
        self.data = data
        self._detector: Detector | None = None
        self._reference_flags: Sequence[SentenceFlags] | None = None
        self._thresholds: Thresholds | None = None
        """Of the latest validation."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check the text and learn what is usual in it, once: a divergence starts a new fit."""
        if self._detector is not None:
            return
        if trainer.is_global_zero:
            log_faults(self.data)
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        thresholds = Thresholds.fit(datamodule.training_sample(SAMPLE), self.data)
        self._detector = Detector(thresholds, detects=False)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Flag the outputs: the validation was translated at its start."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        for callback in callbacks:
            if isinstance(callback, TranslateValidation) and callback.latest is not None:
                rates = self._failure_rates(trainer, callback.latest)
                pl_module.log_dict(rates, rank_zero_only=False)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the thresholds, unless an earlier model is better and translates new text."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        best = [callback for callback in callbacks if isinstance(callback, BestCheckpoint)]
        is_best = all(callback.improves(trainer) for callback in best)
        if self._thresholds is not None and is_best and trainer.is_global_zero:
            try:
                self._thresholds.write(Path(trainer.default_root_dir))
            except (OSError, NoSpaceLeft) as error:
                logger.warning("%s; flags of new text use other thresholds", error)

    def _failure_rates(self, trainer: Trainer, validation: ValidationOutputs) -> dict[str, float]:
        if self._detector is None:
            return {}
        failures = find_failures(self._detector, *validation, self._reference_flags)
        self._reference_flags = failures.references
        log_probabilities = [output.log_probability for output in validation.outputs]
        lowest = lowest_usual([value for value in log_probabilities if value])
        self._thresholds = replace(self._detector.thresholds, low_confidence=lowest)
        return {f"val/failures/{name}": rate for name, rate in failures.rates().items()}
