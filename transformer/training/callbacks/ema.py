"""The exponential moving average of the weights, which validation and the checkpoint use."""

from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import EMAWeightAveraging
from torch.optim.swa_utils import get_ema_multi_avg_fn


class MovingAverage(EMAWeightAveraging):
    """An exponential moving average of the weights, which validates in their place.

    Buffers, such as the table of positions, are not averaged: they would drift by rounding, and a
    resumed run computes them again. Skipped updates do not count.
    """

    def __init__(self, decay: float) -> None:
        super().__init__(decay=decay, use_buffers=False)
        self.decay = decay

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Keep the average on the device on which the weights will be."""
        self._device = device = trainer.strategy.root_device
        super().setup(trainer, pl_module, stage)
        if self._average_model is not None and device.type != "cpu":
            # One operation for all weights. The host still waits for each update, as a bad one does
            # not count (docs/gpu.md).
            self._average_model.multi_avg_fn = get_ema_multi_avg_fn(self.decay)
            self._average_model.n_averaged = torch.tensor(0)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update the average."""
        if outputs["outcome"].good:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do not swap them: the last checkpoint, still to be written, holds both."""
