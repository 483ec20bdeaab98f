"""The exponential moving average of the weights (EMA), used for validation."""

from typing import Any

import torch
from jaxtyping import Bool
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import EMAWeightAveraging
from torch import Tensor, nn

from transformer.training.step.outcome import Outcome


class MovingAverage(EMAWeightAveraging):
    """Averages weights, not buffers (rounding), for validation; skipped updates do not count."""

    def __init__(self, decay: float) -> None:
        super().__init__(decay=decay, use_buffers=False)
        self.decay = decay

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._device = trainer.strategy.root_device
        super().setup(trainer, pl_module, stage)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        outcome: Outcome = outputs["outcome"]
        if trainer.strategy.root_device.type != "cpu":
            self._follow(pl_module, outcome.applied)
            self._latest_update_step = trainer.global_step
        elif outcome.numbers.good:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    @torch.no_grad()
    def _follow(self, module: nn.Module, applied: Bool[Tensor, ""]) -> None:
        """Update the average if the weights were updated, without a read by the host."""
        assert self._average_model is not None
        count = self._average_model.n_averaged
        # The first average is the weights themselves.
        weight = applied * torch.where(count == 0, 1.0, 1 - self.decay)
        average: list[Tensor] = list(self._average_model.parameters())
        weights: list[Tensor] = list(module.parameters())
        difference = torch._foreach_sub(weights, average)
        torch._foreach_mul_(difference, weight)
        torch._foreach_add_(average, difference)
        count += applied

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do not swap weights and average: the last checkpoint, written later, has both."""
