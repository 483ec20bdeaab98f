"""The callback that looks for faults in the text of a run and for failures in its validations."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.common.files import NoSpaceLeft
from transformer.quality.examination import log_faults
from transformer.quality.failures.flags import Detector
from transformer.quality.failures.monitor import SentenceFlags, find_failures
from transformer.quality.failures.thresholds import SAMPLE, Thresholds, lowest_usual
from transformer.settings.data import DataConfig
from transformer.tasks.translation import TranslateValidation, ValidationOutputs

logger = logging.getLogger(__name__)


class QualityChecks(Callback):
    """Checks the text of a translation before training, and the outputs of each validation.

    Faults of the text are lines of the log (docs/doctor.md). Failures of the outputs of a
    `TranslateValidation` are logged as ``val/failures/FLAG``, in percent, and the thresholds for
    new text are written into the run directory (docs/failures.md).
    """

    def __init__(self, data: DataConfig) -> None:
        self.data = data
        self._detector: Detector | None = None
        self._of_references: Sequence[SentenceFlags] | None = None

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

    def _failure_rates(self, trainer: Trainer, validation: ValidationOutputs) -> dict[str, float]:
        if self._detector is None:
            return {}
        failures = find_failures(self._detector, *validation, self._of_references)
        self._of_references = failures.references
        if trainer.is_global_zero:
            log_probabilities = [output.log_probability for output in validation.outputs]
            lowest = lowest_usual([value for value in log_probabilities if value])
            thresholds = replace(self._detector.thresholds, low_confidence=lowest)
            try:
                thresholds.write(Path(trainer.default_root_dir))
            except (OSError, NoSpaceLeft) as error:
                logger.warning("%s; flags of new text use other thresholds", error)
        return {f"val/failures/{name}": rate for name, rate in failures.rates().items()}
