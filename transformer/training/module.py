"""The training step as Lightning runs it: hidden states, loss, one normaliser for the update.

It knows neither text nor search; callbacks.py translates during validation.
"""

from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer

from transformer.data.batch import Batch
from transformer.model.checkpoint import PORTABLE
from transformer.model.transformer import Transformer
from transformer.training.alignment_loss import alignment_loss, guided_head, watching
from transformer.training.loss import LossConfig, cross_entropy, loss_function
from transformer.training.optimizer import OptimizerConfig, build_optimizer
from transformer.training.schedule import ScheduleConfig, build_schedule


class TranslationModule(LightningModule):
    """Trains a ``Transformer`` by teacher forcing.

    The loss of an update is a sum over its target tokens divided by their number, counted over
    all accumulated micro-batches and all ranks. ``training_step`` therefore returns the sum, and
    the gradient is divided once, before it is clipped.

    Args:
        model: The model to train.
        loss: How the loss is computed.
        optimizer: How the weights are updated.
        schedule: How the learning rate moves.
        portable: What every checkpoint says besides the weights (``checkpoint.portable_part``).

    Raises:
        InputError: The head that shall learn the word alignment is not there.
    """

    def __init__(
        self,
        model: Transformer,
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
        self.guided = None
        if loss.alignment_weight:
            self.guided = guided_head(loss, model.config.decoder_layers, model.config.num_heads)

    def training_step(self, batch: Batch, batch_index: int) -> dict[str, Tensor]:
        """Sum of the loss over the target tokens of one micro-batch.

        ``summed_loss`` is that of the translation alone, without guided alignment.
        """
        if self.guided is None:
            loss = summed = self._translation_loss(batch)
        else:
            with watching(self.model, *self.guided) as looked:
                summed = self._translation_loss(batch)
            loss = summed + self.loss.alignment_weight * self._alignment_loss(looked, batch)
        return {"loss": loss, "summed_loss": summed.detach()}

    def _translation_loss(self, batch: Batch) -> Tensor:
        hidden, target = self._hidden(batch)
        loss, _ = loss_function(self.loss, hidden, self.model.projection.weight, target)
        self.update_tokens += len(target)
        return loss

    def _alignment_loss(self, looked: list[Tensor], batch: Batch) -> Tensor:
        """Sum over the linked target tokens; logs their mean, in nats."""
        if batch.alignment is None:
            raise ValueError("guided alignment needs batches with links: DataModule(links=True)")
        if not looked:
            return torch.zeros((), device=batch.source.device)
        summed, linked = alignment_loss(looked[0], batch.alignment)
        self.log("train/alignment_loss", summed.detach() / linked.clamp_min(1))
        return summed

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Log the negative log-likelihood per target token, in nats."""
        hidden, target = self._hidden(batch)
        _, nll = cross_entropy(hidden, self.model.projection.weight, target, 0.0)
        tokens = len(target)
        self.log("val/loss", nll / tokens, batch_size=tokens, sync_dist=True)

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

    def _hidden(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Hidden states and right tokens of the real target positions, side by side."""
        hidden = self.model(batch.source, batch.target_input)
        real = batch.target_output != self.model.config.pad
        return hidden[real], batch.target_output[real]
