"""Tries the largest batch before the first update: what will not fit is known now, not at night.

It also sees that all ranks are about to train on the same row of batches. It does not know what
is done where memory does not suffice (gradients.py).
"""

import hashlib
import logging
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn

from transformer.common.errors import InputError, is_out_of_memory
from transformer.data.modules.base import BatchModule

logger = logging.getLogger(__name__)


def adam_means(module: nn.Module) -> list[Tensor]:
    """As much memory as Adam takes for its two means, from the first update on."""
    return [torch.empty_like(p) for p in module.parameters() if p.requires_grad for _ in range(2)]


class MemoryPreflight(Callback):
    """Computes the gradient of the largest planned batch once, and forgets it."""

    def __init__(self, data: BatchModule) -> None:
        self.data = data

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the plans of the ranks, and try.

        Raises:
            InputError: The ranks plan different batches, or memory does not suffice for the state
                of the optimiser, or beside it for one row.
        """
        self._compare(trainer)
        batch: Any = self.data.largest_batch()
        logger.info(
            "trying the largest batch: %s sentence pairs, %s tokens of both sides with padding",
            f"{batch.size:,}",
            f"{batch.positions:,}",
        )
        check_memory: Any = pl_module.check_memory
        # A run that goes on has them already.
        means = [] if trainer.optimizers[0].state else _means_beside(pl_module)
        times = 2 if self.data.accumulation > 1 else 1
        with trainer.precision_plugin.train_step_context():
            check_memory(batch.to(trainer.strategy.root_device), times)
        del means

    def _compare(self, trainer: Trainer) -> None:
        if trainer.world_size == 1:
            return
        mine = hashlib.sha256(repr(self.data.row.identity()).encode()).hexdigest()
        all_of_them = [mine] * trainer.world_size
        torch.distributed.all_gather_object(all_of_them, mine)
        if len(set(all_of_them)) > 1:
            raise InputError(
                "the processes plan different batches: the text, or what it was cut into, is not "
                "the same on all machines; give all of them the same files and the same config"
            )


def _means_beside(module: nn.Module) -> list[Tensor]:
    """The memory of Adam's means, beside that of the weights.

    Raises:
        InputError: There is not enough, and no smaller batch would help.
    """
    try:
        return adam_means(module)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        weights = sum(p.numel() for p in module.parameters() if p.requires_grad)
        raise InputError(
            "the device has no memory for the state of the optimiser, two numbers for each of "
            f"{weights:,} weights; take a smaller model, a device with more memory, or "
            "trainer=fsdp on several"
        ) from error
