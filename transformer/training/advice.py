"""What a run is told of its settings before it begins. It changes none."""

import logging

import torch

from transformer.training.config import RunConfig

logger = logging.getLogger(__name__)

_PRODUCTS = ("avx512_bf16", "amx_bf16", "bf16")
"""In bfloat16, as `torch.cpu.get_capabilities` calls them on x86-64 and on ARM."""


def warn_of_warmup(config: RunConfig) -> None:
    """Where the learning rate would not reach its peak."""
    warmup, updates = config.schedule.warmup, config.trainer["max_steps"]
    if 0 < updates <= warmup:
        said = (
            "schedule.warmup=%d: the learning rate is to reach its peak after the last update, %d"
        )
        logger.warning(said, warmup, updates)


def warn_of_bfloat16(config: RunConfig) -> None:
    """Where products in bfloat16 are worked out by way of float32, and are slower for it."""
    asked = {
        "precision=32-true": config.trainer["precision"] == "bf16-mixed",
        "loss.bfloat16=false": config.loss.bfloat16,
    }
    on_cpu = config.trainer["accelerator"] == "cpu"
    if on_cpu and any(asked.values()) and _lacks_bfloat16():
        logger.warning(
            "this processor has no products in bfloat16; float32 is faster here: set %s",
            " ".join(setting for setting, wanted in asked.items() if wanted),
        )


def _lacks_bfloat16() -> bool:
    """False where torch cannot tell, as before its version 2.13."""
    told = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(told) and not any(told.get(name) for name in _PRODUCTS)
