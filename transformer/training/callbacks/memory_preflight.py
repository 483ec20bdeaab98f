"""Runs the largest batch once before training, so that an out-of-memory error shows early."""

import hashlib
import logging
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor, nn

from transformer.common.errors import InputError
from transformer.data.datamodules.base import BatchModule
from transformer.training.update import runs_out_of_memory

logger = logging.getLogger(__name__)


def empty_moments(module: nn.Module) -> list[Tensor]:
    """Memory of Adam's two moments, which exist from the first update on.

    Muon has one moment of a matrix; its products need more, but when all activations are freed.
    """
    learning = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [torch.empty_like(parameter) for parameter in learning for _ in range(2)]


class MemoryPreflight(Callback):
    """Computes the gradient of the largest planned batch once, and drops it."""

    def __init__(self, data: BatchModule) -> None:
        self.data = data

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Compare the plans of the ranks, and run the batch; InputError if either fails."""
        self._compare(trainer)
        batch: Any = self.data.largest_batch()
        size = f"{batch.size:,} pairs, {batch.positions:,} tokens"
        logger.info("trying the largest batch: %s of both sides with padding", size)
        moments: list[Tensor] = []
        is_resumed = bool(trainer.optimizers[0].state)  # then the optimizer has its moments
        if not is_resumed and runs_out_of_memory(lambda: moments.extend(empty_moments(pl_module))):
            weights = sum(p.numel() for p in pl_module.parameters() if p.requires_grad)
            raise InputError(
                "the device has no memory for the state of the optimizer, up to two numbers for "
                f"each of {weights:,} weights; take a smaller model, a device with more memory, or "
                "trainer=fsdp on several"
            )
        times = 2 if self.data.accumulation > 1 else 1
        with trainer.precision_plugin.train_step_context():
            pl_module.check_memory(batch.to(trainer.strategy.root_device), times)
        del moments
        if pl_module.compiled:
            from torch._dynamo.utils import calculate_time_spent

            logger.info("torch.compile took %.1f s", calculate_time_spent()["total_wall_time"])

    def _compare(self, trainer: Trainer) -> None:
        """Raise InputError if the ranks plan different batches."""
        digest = hashlib.sha256(repr(self.data.sequence.identity()).encode()).hexdigest()
        digests = [digest] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(digests, digest)
        if len(set(digests)) > 1:
            raise InputError(
                "the ranks plan different batches: text or subwords differ between the machines; "
                "give all of them the same files and the same config"
            )
