"""The update that all tasks share: a sum of losses, one normaliser, clipping, optimiser, file.

It does not know what a batch holds: a task's module says which hidden states shall predict what.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer

from transformer.model.checkpoint import PORTABLE
from transformer.model.single_stack import SingleStack
from transformer.model.transformer import Transformer
from transformer.training.loss import LossConfig, cross_entropy, loss_function
from transformer.training.optimizer import OptimizerConfig, build_optimizer
from transformer.training.schedule import ScheduleConfig, build_schedule


class UpdateModule(LightningModule, ABC):
    """Trains a model whose hidden states, projected, predict the right tokens.

    The loss of an update is a sum over its predictions divided by their number, counted over all
    accumulated micro-batches and all ranks. ``training_step`` therefore returns the sum, and the
    gradient is divided once, before it is clipped.

    Args:
        model: The model to train.
        loss: How the loss is computed.
        optimizer: How the weights are updated.
        schedule: How the learning rate moves.
        portable: What every checkpoint says besides the weights (``checkpoint.portable_part``).
    """

    def __init__(
        self,
        model: Transformer | SingleStack,
        *,
        loss: LossConfig,
        optimizer: OptimizerConfig,
        schedule: ScheduleConfig,
        portable: dict[str, Any],
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.schedule = schedule
        self.portable = portable
        self.update_tokens = 0

    @abstractmethod
    def predictions(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Hidden states that predict, ``token width``, and what is right, ``token``."""

    def summed_loss(self, batch: Any) -> Tensor:
        """Sum of the smoothed loss over the predictions of one micro-batch, which are counted."""
        hidden, right = self.predictions(batch)
        loss, _ = loss_function(self.loss, hidden, self.model.projection.weight, right)
        self.update_tokens += len(right)
        return loss

    def training_step(self, batch: Any, batch_index: int) -> dict[str, Tensor]:
        """The loss to learn from, and ``summed_loss`` to log: here the same."""
        loss = self.summed_loss(batch)
        return {"loss": loss, "summed_loss": loss.detach()}

    def validation_step(self, batch: Any, batch_index: int) -> None:
        """Log the negative log-likelihood per prediction, in nats."""
        self.log_likelihood(*self.predictions(batch))

    def log_likelihood(self, hidden: Tensor, right: Tensor) -> None:
        """Log ``val/loss`` of one batch; Lightning takes the mean over all predictions."""
        _, nll = cross_entropy(hidden, self.model.projection.weight, right, 0.0)
        self.log("val/loss", nll / len(right), batch_size=len(right), sync_dist=True)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Turn the gradient of the sum into the gradient of the mean over the whole update."""
        tokens = torch.tensor(float(self.update_tokens), device=self.device)
        if self.trainer.world_size > 1:
            torch.distributed.all_reduce(tokens)
        # Lightning has divided by the number of micro-batches, and averaged over the ranks.
        averaged = self.trainer.accumulate_grad_batches * self.trainer.world_size
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, averaged / tokens)
        self.update_tokens = 0

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the norm over all weights, and log that norm."""
        limit = gradient_clip_val or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.log("train/grad_norm", norm)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimiser, and the schedule stepped once an update."""
        optimizer = build_optimizer(self.optimizer, self.model.parameters())
        scheduler = build_schedule(self.schedule, optimizer, self.model.config.d_model)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the file complete: it needs no other."""
        checkpoint[PORTABLE] = self.portable
