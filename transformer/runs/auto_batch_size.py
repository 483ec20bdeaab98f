"""``data.batch_tokens=auto``: the largest budget of a batch that the memory of a GPU allows."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from pytorch_lightning.accelerators import CUDAAccelerator
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from pytorch_lightning.utilities.seed import isolate_rng

from transformer.checkpoint.checkpoint import portable_part
from transformer.common.errors import InputError
from transformer.model.layers.layer_drop import all_layers
from transformer.settings.data import BUDGET_STEP
from transformer.settings.run import RunConfig
from transformer.tasks.registry import make_task
from transformer.training.callbacks.memory_preflight import empty_moments
from transformer.training.distributed.ranks import external_rank
from transformer.training.precision import resolve_precision, trains_on_gpu
from transformer.training.update import UpdateModule, free_memory, runs_out_of_memory

logger = logging.getLogger(__name__)

_MAX_TOKENS = 2**20
"""Largest budget that is tried."""

_HEADROOM = 0.9
"""Used fraction of the budget that fits; fragments and other shapes need the rest."""


def with_resolved_budget(
    config: RunConfig, resumed: dict[str, Any] | None, initial: dict[str, Any] | None
) -> RunConfig:
    """The config with the budget of the resumed run, or a measured one, instead of ``auto``."""
    if resumed is not None:
        budget = portable_part(resumed).config.data.budget
        logger.info(
            "data.batch_tokens=%d, as the run began with; give a number to change it", budget
        )
    else:
        # The random numbers of the measurement do not change those of the run.
        with isolate_rng():
            budget = _measured_budget(config, initial)
    return with_budget(config, budget)


def _measured_budget(config: RunConfig, payload: dict[str, Any] | None) -> int:
    device = resolve_device(config)
    task = make_task(config, payload)
    task.data.prepare_data()

    def fits(budget: int) -> bool:
        data = make_task(with_budget(config, budget), payload).data
        data.setup("fit")
        return can_train(task.module, data.largest_batch(), device, config)

    budget = largest_fitting(fits, config.data.budget)
    task.module.cpu()
    free_memory()
    logger.info("data.batch_tokens=%d fits %s", budget, device)
    return budget


def largest_fitting(fits: Callable[[int], bool], minimum: int) -> int:
    """The largest multiple of ``BUDGET_STEP`` that fits, less a reserve; InputError for none."""
    low = 0
    high = minimum // BUDGET_STEP
    while high * BUDGET_STEP <= _MAX_TOKENS and fits(high * BUDGET_STEP):
        low = high
        high *= 2
    if low == 0:
        raise InputError(
            f"data.batch_tokens=auto: the device has no memory for batches of {minimum} tokens; "
            "take a smaller model, data.max_length lower, or gradient_checkpointing=true"
        )
    high = min(high, _MAX_TOKENS // BUDGET_STEP + 1)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        if fits(middle * BUDGET_STEP):
            low = middle
        else:
            high = middle
    return max(minimum // BUDGET_STEP, int(low * _HEADROOM)) * BUDGET_STEP


def resolve_device(config: RunConfig) -> torch.device:
    """The one GPU of a run, whose memory determines the budget; InputError for another number."""
    trainer = config.trainer
    devices: Any = trainer.devices
    numbers: list[int] = []
    if trains_on_gpu(trainer):
        with suppress(MisconfigurationException, ValueError, TypeError):
            count = CUDAAccelerator.auto_device_count() if devices == "auto" else devices
            numbers = CUDAAccelerator.parse_devices(count) or []
    measurable = trainer.strategy != "fsdp" and not config.data.streaming
    if not measurable or len(numbers) * trainer.num_nodes != 1 or external_rank():
        raise InputError(
            "data.batch_tokens=auto measures the memory of one GPU with the whole text; with "
            f"trainer.accelerator={trainer.accelerator}, trainer.devices={devices}, several ranks, "
            "trainer=fsdp or data.streaming=true set a number, such as data.batch_tokens=4096"
        )
    return torch.device("cuda", numbers[0])


def can_train(module: UpdateModule, batch: Any, device: torch.device, config: RunConfig) -> bool:
    """Whether a device has the memory for an update on a batch."""
    fails = runs_out_of_memory(lambda: _update(module.to(device).train(), batch.to(device), config))
    module.zero_grad()
    free_memory()
    return not fails


def _update(module: UpdateModule, batch: Any, config: RunConfig) -> None:
    moments = empty_moments(module)
    average = [torch.empty_like(p) for p in module.parameters() if config.callbacks.ema_decay > 0]
    bfloat16 = "bf16" in resolve_precision(config.trainer).precision
    # The second micro-batch must fit beside the gradient of the first.
    for _ in range(2 if config.trainer.accumulate_grad_batches > 1 else 1):
        with (
            all_layers(module.model),
            torch.autocast(module.device.type, torch.bfloat16, enabled=bfloat16),
        ):
            loss, _, _ = module.micro_loss(batch)
        loss.backward()
    del moments, average


def with_budget(config: RunConfig, budget: int) -> RunConfig:
    """The config with a number in place of ``auto``."""
    return replace(config, data=replace(config.data, batch_tokens=budget))
