"""``data.batch_tokens=auto``: the largest budget of a batch that the memory of the device allows.

It tries the batch that would be the largest of a plan, forward and backward, with the state that
the optimiser will hold. It does not know how the search for memory is done on other devices: on a
CPU there is nothing to try, for a process that asks for too much is killed.
"""

import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from pytorch_lightning.accelerators import CUDAAccelerator
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from transformer.common.errors import InputError, is_out_of_memory
from transformer.data.modules.base import BatchModule
from transformer.model.layers.dropout import all_layers
from transformer.training.callbacks.memory_preflight import adam_moments
from transformer.training.config import BUDGET_STEP, RunConfig
from transformer.training.distributed.rendezvous import external_place
from transformer.training.step.update_module import UpdateModule

logger = logging.getLogger(__name__)

_MOST = 2**20
_HEADROOM = 0.9
"""Share of what fits that is taken: fragments, and other shapes, need the rest."""


def largest_fitting(fits: Callable[[int], bool], least: int) -> int:
    """The largest budget that fits, less a reserve; doubled until one does not, then halved in on.

    Args:
        fits: Whether training with a budget (a multiple of ``BUDGET_STEP``) has enough memory.
        least: The smallest of interest, a multiple of ``BUDGET_STEP``.

    Raises:
        InputError: Not even the smallest does.
    """
    low, high = 0, least // BUDGET_STEP
    while high * BUDGET_STEP <= _MOST and fits(high * BUDGET_STEP):
        low, high = high, 2 * high
    if low == 0:
        raise InputError(
            f"data.batch_tokens=auto: the device has no memory for batches of {least} tokens; take "
            "a smaller model, data.max_length lower, or gradient_checkpointing=true"
        )
    high = min(high, _MOST // BUDGET_STEP + 1)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * BUDGET_STEP) else (low, middle)
    return max(least // BUDGET_STEP, int(low * _HEADROOM)) * BUDGET_STEP


def resolve_device(config: RunConfig) -> torch.device:
    """The one device of a run, whose memory tells the budget.

    Raises:
        InputError: It has no memory of its own to measure, there are several, or a batch that
            is tried would not be the largest that is trained on.
    """
    trainer = config.trainer
    if config.data.streaming:
        raise InputError(
            "data.batch_tokens=auto looks at the whole text, which a stream does not; give a "
            "number, such as 4096"
        )
    if trainer["strategy"] == "fsdp":
        raise InputError(
            "data.batch_tokens=auto does not go with trainer=fsdp: one rank tries a batch; set "
            "data.batch_tokens=NUMBER"
        )
    if trainer["accelerator"] not in ("gpu", "cuda", "auto") or not torch.cuda.is_available():
        raise InputError(
            "data.batch_tokens=auto measures the memory of a GPU; with "
            f"trainer.accelerator={trainer['accelerator']} give a number, such as 4096"
        )
    devices = _devices(trainer["devices"])
    if len(devices) * trainer["num_nodes"] != 1 or external_place():
        raise InputError(
            "data.batch_tokens=auto measures one GPU; let it say the number once with trainer=gpu, "
            "and give that to the run of several"
        )
    return torch.device("cuda", devices[0])


def _devices(given: Any) -> list[int]:
    """The numbers of the GPUs that Lightning would take for ``trainer.devices``.

    Raises:
        InputError: It would refuse them.
    """
    try:
        count = CUDAAccelerator.auto_device_count() if given == "auto" else given
        return CUDAAccelerator.parse_devices(count) or []
    except (MisconfigurationException, ValueError, TypeError) as error:
        raise InputError(f"trainer.devices={given}: {' '.join(str(error).split())}") from error


class Attempt:
    """Whether a task can be trained with a budget on a device.

    Args:
        module: What is trained.
        data_of: The prepared data of a budget.
        device: Where.
        config: Of the run.
    """

    def __init__(
        self,
        module: UpdateModule,
        resolve_data: Callable[[int], BatchModule],
        device: torch.device,
        config: RunConfig,
    ) -> None:
        self.module, self.resolve_data, self.device = module, resolve_data, device
        self.dtype = torch.bfloat16 if "bf16" in str(config.trainer["precision"]) else None
        self.averaged = config.callbacks.ema_decay > 0
        # Beside the gradient of one micro-batch the next must fit.
        self.times = 2 if config.trainer["accumulate_grad_batches"] > 1 else 1

    def __call__(self, budget: int) -> bool:
        """Try."""
        batch: Any = self.resolve_data(budget).largest_batch()
        fitted = True
        try:
            self._step(batch.to(self.device))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            fitted = False
        self.forget()
        return fitted

    def _step(self, batch: Any) -> None:
        module = self.module.to(self.device).train()
        means = adam_moments(module)
        average = [torch.empty_like(p) for p in module.parameters() if self.averaged]
        for _ in range(self.times):
            with (
                all_layers(module.model),
                torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None),
            ):
                loss, _, _ = module.micro_loss(batch)
            loss.backward()
        del means, average

    def forget(self) -> None:
        """Leave the device as it was, but for the weights."""
        self.module.zero_grad()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def with_budget(config: RunConfig, budget: int) -> RunConfig:
    """The run with that number in place of ``auto``, also in what its checkpoints will say."""
    resolved = dict(config.resolved)
    resolved["data"] = {**resolved["data"], "batch_tokens": budget}
    data = replace(config.data, batch_tokens=budget)
    return replace(config, data=data, automatic_budget=False, resolved=resolved)
