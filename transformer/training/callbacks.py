"""What happens around the steps: translating during validation, measuring, stopping.

No callback changes the weights, except Lightning's moving average of them.
"""

import logging
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, runtime_checkable

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping, EMAWeightAveraging

from transformer.data.loader import Update
from transformer.training.checkpoint import Criterion, checkpoint_callbacks
from transformer.training.progress import ProgressBar, time_to_log

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CallbacksConfig:
    """What to do around the steps.

    Attributes:
        ema_decay: Decay of the moving average of the weights, which then validates, tests and
            translates in place of the weights themselves; 0 keeps none.
        patience: Validations without a better score (``Criterion``) after which training stops;
            null never stops.
        keep_last: Newest checkpoints kept for ``average``.
        samples: Validation sentences whose translations are written to the log.
    """

    ema_decay: float
    patience: int | None
    keep_last: int
    samples: int


@runtime_checkable
class CountedBatch(Protocol):
    """A batch that counts its tokens."""

    @property
    def target_tokens(self) -> int:
        """What the loss counts."""

    @property
    def tokens(self) -> int:
        """All without padding."""

    @property
    def positions(self) -> int:
        """All with padding."""


class Measure(Callback):
    """Logs loss, tokens per second, padding and learning rate over the updates since last time.

    All are of all ranks together. ``train/loss`` is the smoothed loss per target token, in nats.
    ``train/tokens_per_second`` counts real target tokens; waiting for data counts, validation does
    not. ``train/alignment_loss`` is that of guided alignment per linked target token, in nats.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._restart()

    def _restart(self) -> None:
        self.loss = torch.zeros(())
        self.alignment = torch.zeros(2)
        self.target = self.real = self.padded = 0
        self.seconds = 0.0

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Update[Any], batch_idx: int
    ) -> None:
        """Start the clock, if a validation has stopped it."""
        if self.since is None:
            self.since = time.perf_counter()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        if self.since is not None:
            self.seconds += time.perf_counter() - self.since
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
        self.loss = self.loss.to(pl_module.device) + outputs["loss"]
        if "alignment" in outputs:
            self.alignment = self.alignment.to(pl_module.device) + outputs["alignment"]
        self.target += outputs["tokens"]
        micro_batches: list[CountedBatch] = batch.batches
        self.real += sum(micro.tokens for micro in micro_batches)
        self.padded += sum(micro.positions for micro in micro_batches)
        if time_to_log(trainer) and self.since is not None:
            now = time.perf_counter()
            seconds, self.since = self.seconds + now - self.since, now
            pl_module.log_dict(self._values(trainer, seconds))
            self._restart()

    def _values(self, trainer: Trainer, seconds: float) -> dict[str, float]:
        counted = torch.tensor([self.real, self.padded], dtype=torch.float64)
        counted = counted.to(trainer.strategy.root_device)
        real, padded = trainer.strategy.reduce(counted, reduce_op="sum").tolist()
        values = {
            "train/loss": self.loss.item() / self.target,
            "train/tokens_per_second": self.target / seconds,
            "train/padding": 1 - real / padded,
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
        }
        summed, linked = self.alignment.tolist()
        if linked:
            values["train/alignment_loss"] = summed / linked
        return values


class GracefulStop(Callback):
    """Lets Ctrl-C finish the update, so that the checkpoint is of a whole update.

    A second Ctrl-C stops at once. All ranks stop after the same update.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self.previous: Any = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen."""

        def stop(signum: int, frame: FrameType | None) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True
            logger.warning("stopping after this update; press Ctrl-C again to stop at once")

        self.previous = signal.signal(signal.SIGINT, stop)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Update[Any],
        batch_idx: int,
    ) -> None:
        """Ask for the stop, if any rank has been told to."""
        if trainer.strategy.reduce_boolean_decision(self.interrupted, all=False):
            self.interrupted = True
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Hand the signal back."""
        signal.signal(signal.SIGINT, self.previous)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Hand the signal back after an error; after Ctrl-C Lightning wants it for itself."""
        if self.previous is not None and not isinstance(exception, KeyboardInterrupt):
            signal.signal(signal.SIGINT, self.previous)


def build_callbacks(
    config: CallbacksConfig, validation: Sequence[Callback], criterion: Criterion, folder: Path
) -> Sequence[Callback]:
    """All callbacks, in the order in which they run; checkpoints run last.

    Args:
        config: Which ones.
        validation: Those of the task.
        criterion: What is better.
        folder: For the checkpoints.
    """
    callbacks: list[Callback] = []
    if config.ema_decay:
        # Before the task's, which must see the averaged weights.
        callbacks.append(EMAWeightAveraging(decay=config.ema_decay))
    callbacks += [*validation, Measure(), ProgressBar(), GracefulStop()]
    if config.patience is not None:
        metric, mode = criterion.metric, criterion.mode
        callbacks.append(EarlyStopping(metric, mode=mode, patience=config.patience))
    return [*callbacks, *checkpoint_callbacks(folder, config.keep_last, criterion)]
