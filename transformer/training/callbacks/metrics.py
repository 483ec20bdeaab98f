"""What happens around the steps: measuring, averaging, a validation at the end.

No callback changes the weights, except Lightning's moving average of them.
"""

import logging
import math
import time
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.data.batching.loader import Update
from transformer.training.callbacks.progress import time_to_log

logger = logging.getLogger(__name__)


class Measure(Callback):
    """Logs loss, tokens per second, padding and learning rate over the updates since last time.

    All are of all ranks together. ``train/loss`` is the smoothed loss per target token, in nats,
    of the updates that were not left out.
    ``train/tokens_per_second`` counts real target tokens; waiting for data counts, validation does
    not. ``train/alignment_loss`` is that of guided alignment per linked target token, in nats,
    ``train/consistency`` the divergence of two passes (``consistency_loss.py``) per target token,
    unweighted.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._restart()

    def _restart(self) -> None:
        self.loss, self.alignment = 0.0, [0.0, 0.0]
        self.consistency: float | None = None
        self.learnt = self.target = self.real = self.padded = 0
        self.seconds = 0.0

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Update[Any], batch_idx: int
    ) -> None:
        """Start the clock, if a validation has stopped it."""
        if self.since is None:
            self.since = time.perf_counter()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._take_time()
        self.since = None

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Update[Any],
        batch_idx: int,
    ) -> None:
        """Count the update; log when it is time to."""
        if outputs["good"]:
            sums = outputs["sums"]
            self.loss += sums["loss"]
            self.learnt += outputs["tokens"]
            if "alignment" in sums:
                pairs = zip(self.alignment, sums["alignment"], strict=True)
                self.alignment = [before + more for before, more in pairs]
            if "consistency" in sums:
                self.consistency = (self.consistency or 0.0) + sums["consistency"]
        self.lr = outputs["lr"]
        self.target += outputs["tokens"]
        self.real += batch.tokens
        self.padded += batch.positions
        if time_to_log(trainer) and self.since is not None:
            self._take_time()
            pl_module.log_dict(self._values(trainer))
            self._restart()

    def _take_time(self) -> None:
        if self.since is not None:
            now = time.perf_counter()
            self.seconds += now - self.since
            self.since = now

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Let the mean of a run that goes on be over the updates before the break, too.

        Not the speed: a checkpoint that held times would not be the same twice.
        """
        checkpoint["measured"] = {
            "loss": self.loss,
            "alignment": self.alignment,
            "consistency": self.consistency,
            "learnt": self.learnt,
            "counted": self._counted(trainer),
        }

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Count on."""
        if before := checkpoint.get("measured"):
            self.loss, self.alignment = before["loss"], before["alignment"]
            # A checkpoint of an earlier version has none.
            self.consistency = before.get("consistency")
            self.learnt = before["learnt"]
            if trainer.is_global_zero:
                self.real, self.padded = before["counted"]

    def _counted(self, trainer: Trainer) -> list[int]:
        """Tokens of all ranks, without and with padding."""
        counted = torch.tensor([self.real, self.padded], dtype=torch.int64)
        counted = counted.to(trainer.strategy.root_device)
        summed = trainer.strategy.reduce(counted, reduce_op="sum")
        return [int(count) for count in summed.tolist()]

    def _values(self, trainer: Trainer) -> dict[str, float]:
        real, padded = self._counted(trainer)
        values = {
            "train/loss": self.loss / self.learnt if self.learnt else math.nan,
            "train/tokens_per_second": self.target / self.seconds,
            "train/padding": 1 - real / padded,
            "lr": self.lr,
        }
        summed, linked = self.alignment
        if linked:
            values["train/alignment_loss"] = summed / linked
        if self.consistency is not None:
            values["train/consistency"] = self.consistency / max(1, self.learnt)
        return values


class LastValidation(Callback):
    """Lets a run of so many updates end in a validation, whatever the interval of the others.

    What came after the last one would otherwise never be the best.
    """

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Let Lightning, which asks for the interval after this, validate after any update."""
        if 0 <= trainer.max_steps <= trainer.global_step:
            trainer.val_check_batch = 1
