"""What happens around the steps: measuring, averaging, a validation at the end.

No callback changes the weights, except Lightning's moving average of them.
"""

import logging
import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import EMAWeightAveraging

from transformer.common.errors import InputError
from transformer.data.batching.loader import Update
from transformer.training.progress import time_to_log

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CallbacksConfig:
    """What to do around the steps.

    Attributes:
        ema_decay: Decay of the moving average of the weights, which then validates, tests and
            translates in place of the weights themselves; 0 keeps none.
        patience: Validations, each after an interval, without a better score (``Criterion``)
            after which training stops; null never stops.
        keep_last: Validations whose weights are kept for ``average``, the newest; below 0 all.
        save_interval: Updates from one writing of ``last.ckpt`` to the next; null writes it where
            a validation begins and where training stops, which is always done, and nowhere else.
        samples: Validation sentences whose translations are written to the log.
    """

    ema_decay: float
    patience: int | None
    keep_last: int
    save_interval: int | None
    samples: int

    def __post_init__(self) -> None:
        if not 0 <= self.ema_decay < 1:
            raise InputError(
                f"callbacks.ema_decay={self.ema_decay} must be at least 0 (no average) and below 1"
            )
        if self.save_interval is not None and self.save_interval < 1:
            raise InputError(
                f"callbacks.save_interval={self.save_interval} must be at least 1, or null"
            )
        if self.patience is not None and self.patience < 1:
            raise InputError(f"callbacks.patience={self.patience} must be at least 1, or null")


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


class MovingAverage(EMAWeightAveraging):
    """An exponential moving average of the weights, which validates in their place.

    Tables that are computed, such as that of the positions, are no weights: averaged, they would
    drift by rounding, and a run that goes on computes them anew. An update that was left out does
    not count.
    """

    def __init__(self, decay: float) -> None:
        super().__init__(decay=decay, use_buffers=False)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Keep the average where the weights are to be, which are not there yet."""
        self._device = trainer.strategy.root_device
        super().setup(trainer, pl_module, stage)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the average."""
        if outputs["good"]:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave both as they are: the last checkpoint has yet to be written, and has both."""


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
