"""``data.batch_tokens=auto``: the largest budget of a batch that the memory of the device allows.

It tries the batch that would be the largest of a plan, forward and backward, with the state that
the optimiser will hold. It does not know how the search for memory is done on other devices: on a
CPU there is nothing to try, for a process that asks for too much is killed.
"""

import gc
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from transformer.errors import InputError
from transformer.training.config import BUDGET_STEP, RunConfig
from transformer.training.task import Task

logger = logging.getLogger(__name__)

_MOST = 2**20
_SPARE = 0.9
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
    return max(least // BUDGET_STEP, int(low * _SPARE)) * BUDGET_STEP


def device_of(trainer: Mapping[str, Any]) -> torch.device:
    """The device of this process, as the group ``trainer`` says.

    Raises:
        InputError: It has no memory of its own to measure.
    """
    if trainer["accelerator"] not in ("gpu", "cuda", "auto") or not torch.cuda.is_available():
        raise InputError(
            "data.batch_tokens=auto measures the memory of a GPU; with "
            f"trainer.accelerator={trainer['accelerator']} give a number, such as 4096"
        )
    devices = trainer["devices"]
    first = devices[0] if isinstance(devices, list) else 0
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", first)))


class Attempt:
    """Whether a task can be trained with a budget on a device.

    Args:
        task: Prepared, with any budget.
        device: Where its module trains.
        precision: As in the group ``trainer``.
    """

    def __init__(self, task: Task, device: torch.device, precision: str) -> None:
        self.task, self.device = task, device
        self.dtype = torch.bfloat16 if "bf16" in precision else None

    def __call__(self, budget: int) -> bool:
        """Try."""
        data = self.task.data
        batch: Any = data.largest_batch(data.row_of(budget))
        try:
            self._step(batch.to(self.device))
        except (torch.OutOfMemoryError, MemoryError):
            fitted = False
        else:
            fitted = True
        self.task.module.zero_grad()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return fitted

    def _step(self, batch: Any) -> None:
        module = self.task.module.to(self.device).train()
        weights = [p for p in module.parameters() if p.requires_grad]
        # Adam's two means, which stay in memory from the first update on.
        means = [torch.empty_like(p) for p in weights for _ in range(2)]
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None):
            loss, _, _ = module.micro_loss(batch)
        loss.backward()
        del means


def with_budget(config: RunConfig, budget: int) -> RunConfig:
    """The run with that number in place of ``auto``, also in what its checkpoints will say."""
    resolved = dict(config.resolved)
    resolved["data"] = {**resolved["data"], "batch_tokens": budget}
    data = replace(config.data, batch_tokens=budget)
    return replace(config, data=data, automatic_budget=False, resolved=resolved)
