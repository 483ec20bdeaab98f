"""Early stopping; it does not know the metric."""

import logging

from pytorch_lightning import LightningModule, Trainer

from transformer.training.checkpointing import SavedCallback
from transformer.training.model_selection import ModelSelection

logger = logging.getLogger(__name__)


class Patience(SavedCallback):
    """Stops after validations at the interval, in a row, without a better score.

    Lightning's ``EarlyStopping`` also counts a validation that is not at the interval, and has no
    second value for a tie.
    """

    def __init__(self, selection: ModelSelection, patience: int) -> None:
        self.selection, self.patience = selection, patience
        self.best: tuple[float, float] | None = None
        self.waited = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop at once if a stopped run is resumed with the same patience."""
        self._stop(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        values = self.selection.values(trainer.callback_metrics)
        if self.selection.better(values, self.best):
            self.best, self.waited = values, 0
        elif trainer.global_step % trainer.val_check_interval == 0:
            self.waited += 1
        self._stop(trainer)

    def _stop(self, trainer: Trainer) -> None:
        if self.waited >= self.patience:
            logger.info(
                "training ends: %d validations without a better %s than %s (callbacks.patience)",
                self.waited,
                self.selection.metric,
                self.best and self.best[0],
            )
            trainer.should_stop = True
