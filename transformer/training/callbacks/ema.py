"""The exponential moving average of the weights (EMA), used for validation."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from transformer.training.update import Outcome


class MovingAverage(Callback):
    """Averages the weights of updates; skipped updates do not count.

    The decay begins low, so that the average of a short run forgets its first updates, too: it
    follows the polynomial-decay averaging of Shamir and Zhang 2013 (eta 8) up to ``decay``.

    Lightning's ``EMAWeightAveraging`` would wait for the device at each update, to know whether it
    was skipped. A checkpoint has its layout: the average is the ``state_dict``.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self._weights: list[Tensor] = []
        self._averages: list[Tensor] = []
        self._count = torch.zeros((), dtype=torch.int64)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Copy the weights to the device, before a checkpoint is restored."""
        device = trainer.strategy.root_device
        self._weights = list(pl_module.parameters())
        self._averages = [weight.detach().to(device, copy=True) for weight in self._weights]
        self._count = torch.zeros((), dtype=torch.int64, device=device)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        outcome: Outcome = outputs["outcome"]
        self._average(outcome.applied)

    @torch.no_grad()
    def _average(self, applied: Bool[Tensor, ""]) -> None:
        """Update the average if the weights were updated, without a read by the host."""
        # The first average is the weights themselves.
        weight = applied * torch.clamp(9 / (self._count + 9), min=1 - self.decay)
        difference = torch._foreach_sub(self._weights, self._averages)
        torch._foreach_mul_(difference, weight)
        torch._foreach_add_(self._averages, difference)
        self._count += applied

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validate with the averages."""
        self._exchange()

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore weights and averages."""
        self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for weight, average in zip(self._weights, self._averages, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["current_model_state"] = checkpoint["state_dict"]
        averages = dict(self._named(pl_module))
        checkpoint["state_dict"] = {**checkpoint["state_dict"], **averages}
        checkpoint["averaging_state"] = {"n_averaged": self._count}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore weights and averages; the average begins here if the run had none."""
        for name, average in self._named(pl_module):
            average.copy_(checkpoint["state_dict"][name])
        if "current_model_state" in checkpoint:
            self._count.copy_(checkpoint["averaging_state"]["n_averaged"])
            pl_module.load_state_dict(checkpoint["current_model_state"])

    def _named(self, module: LightningModule) -> Iterator[tuple[str, Tensor]]:
        """The averages by all names of their weights; tied weights have several."""
        averages = dict(zip(map(id, self._weights), self._averages, strict=True))
        for name, weight in module.named_parameters(remove_duplicate=False):
            yield name, averages[id(weight)]
