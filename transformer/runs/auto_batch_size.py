"""``data.batch_tokens=auto``: the largest budget of a batch that the memory of the device allows.

It runs the largest batch of a plan forward and backward, beside the state of the optimiser. A CPU
cannot be measured: a process that needs too much memory is killed.
"""

import gc
import logging
from collections.abc import Callable, Sequence
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
from transformer.training.distributed.rendezvous import external_rank
from transformer.training.step.update_module import UpdateModule

logger = logging.getLogger(__name__)

_MAX_TOKENS = 2**20
_HEADROOM = 0.9
"""Used fraction of the budget that fits; fragments and other shapes need the rest."""


def largest_fitting(fits: Callable[[int], bool], minimum: int) -> int:
    """The largest budget that fits, less a reserve, found by doubling and bisection.

    Args:
        fits: Whether training with a budget (a multiple of ``BUDGET_STEP``) has enough memory.
        minimum: The smallest budget, a multiple of ``BUDGET_STEP``.

    Raises:
        InputError: Even the smallest does not fit.
    """
    low, high = 0, minimum // BUDGET_STEP
    while high * BUDGET_STEP <= _MAX_TOKENS and fits(high * BUDGET_STEP):
        low, high = high, 2 * high
    if low == 0:
        raise InputError(
            f"data.batch_tokens=auto: the device has no memory for batches of {minimum} tokens; "
            "take a smaller model, data.max_length lower, or gradient_checkpointing=true"
        )
    high = min(high, _MAX_TOKENS // BUDGET_STEP + 1)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * BUDGET_STEP) else (low, middle)
    return max(minimum // BUDGET_STEP, int(low * _HEADROOM)) * BUDGET_STEP


def resolve_device(config: RunConfig) -> torch.device:
    """The one GPU of a run, whose memory determines the budget.

    Raises:
        InputError: The run does not use exactly one GPU, or one batch does not show its memory.
    """
    trainer = config.trainer
    devices: Sequence[int] = []
    if trainer["accelerator"] in ("gpu", "cuda", "auto") and torch.cuda.is_available():
        devices = _device_numbers(trainer["devices"])
    measurable = trainer["strategy"] != "fsdp" and not config.data.streaming
    if not measurable or len(devices) * trainer["num_nodes"] != 1 or external_rank():
        raise InputError(
            "data.batch_tokens=auto measures the memory of one GPU with the whole text; with "
            f"trainer.accelerator={trainer['accelerator']}, several ranks, trainer=fsdp or "
            "data.streaming=true set a number, such as data.batch_tokens=4096"
        )
    return torch.device("cuda", devices[0])


def _device_numbers(given: Any) -> Sequence[int]:
    """The GPUs that Lightning uses for ``trainer.devices``.

    Raises:
        InputError: Lightning does not accept the value.
    """
    try:
        count = CUDAAccelerator.auto_device_count() if given == "auto" else given
        return CUDAAccelerator.parse_devices(count) or []
    except (MisconfigurationException, ValueError, TypeError) as error:
        raise InputError(f"trainer.devices={given}: {' '.join(str(error).split())}") from error


class Attempt:
    """Whether a task can be trained with a budget on a device.

    Args:
        module: The model and its training step.
        resolve_data: Returns the prepared data of a budget.
        device: The device.
        config: The config of the run.
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
        # The second micro-batch must fit beside the gradient of the first.
        self.times = 2 if config.trainer["accumulate_grad_batches"] > 1 else 1

    def __call__(self, budget: int) -> bool:
        """Run the largest batch of a budget."""
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
        moments = adam_moments(module)
        average = [torch.empty_like(p) for p in module.parameters() if self.averaged]
        for _ in range(self.times):
            with (
                all_layers(module.model),
                torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None),
            ):
                loss, _, _ = module.micro_loss(batch)
            loss.backward()
        del moments, average

    def forget(self) -> None:
        """Free all memory of the device but that of the weights."""
        self.module.zero_grad()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def with_budget(config: RunConfig, budget: int) -> RunConfig:
    """The config with a number in place of ``auto``, also in the values for its checkpoints."""
    resolved = dict(config.resolved)
    resolved["data"] = {**resolved["data"], "batch_tokens": budget}
    data = replace(config.data, batch_tokens=budget)
    return replace(config, data=data, automatic_budget=False, resolved=resolved)
