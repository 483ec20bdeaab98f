"""Fine-tuning: the scores before the first update beside those of the best validation."""

import logging

from pytorch_lightning import LightningModule, Trainer

from transformer.training.checkpointing.checkpoint_io import Criterion
from transformer.training.checkpointing.saved_state import SavedCallback

logger = logging.getLogger(__name__)


class BeforeAndBest(SavedCallback):
    """Logs at the end of training what it has changed, for each corpus by itself."""

    def __init__(self, criterion: Criterion) -> None:
        self.criterion = criterion
        self.before: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self.update = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the metrics."""
        now = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith("val/")}
        if not trainer.global_step:
            self.before = now
        best = self.criterion.values(self.best) if self.best else None
        if self.criterion.better(self.criterion.values(now), best):
            self.best, self.update = now, trainer.global_step

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log them; a run that began without the score before has none to compare."""
        if not self.before or not trainer.is_global_zero:
            return
        changes = (f"{k} {v:.4g} -> {self.best[k]:.4g}" for k, v in sorted(self.before.items()))
        logger.info("before -> best (update %d): %s", self.update, ", ".join(changes))
        if not self.update:
            logger.warning(
                "no validation was better than that before training: best.ckpt is the model as it "
                "was; lower optimizer.lr, or give more text"
            )
