"""Warnings about settings of a run; it changes none."""

import logging
from collections.abc import Iterator

import torch

from transformer.training.config import RunConfig
from transformer.training.optimization.schedule import noam

logger = logging.getLogger(__name__)

_MIN_FACTOR = 0.05
"""A smaller factor of ``noam`` is probably a learning rate, meant for another schedule."""

_BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
"""Instruction sets that multiply in bfloat16, two of x86-64 and that of ARM."""


def warn_about_config(config: RunConfig) -> None:
    """Log a warning for each setting that probably does not do what the user wants."""
    for message in (*_schedule(config), *_bfloat16(config)):
        logger.warning(message)


def _schedule(config: RunConfig) -> Iterator[str]:
    name, warmup, end = config.schedule.name, config.schedule.warmup, config.schedule.total
    updates, rate = config.trainer["max_steps"], config.optimizer.lr
    if name == "cosine" and 0 < (end or 0) <= warmup < updates:
        yield (
            f"schedule.warmup={warmup}: the cosine ends at schedule.total={end}, so that the "
            "learning rate falls from its peak to schedule.floor at once"
        )
    if 0 < updates <= warmup:
        yield (
            f"schedule.warmup={warmup}: the learning rate still rises when training ends, after "
            f"{updates} updates; in a run that is to learn, set it lower or trainer.max_steps "
            "higher"
        )
    if name == "noam" and rate < _MIN_FACTOR:
        peak = rate * noam(max(warmup, 1), warmup, config.model["d_model"])
        yield (
            f"schedule=noam: optimizer.lr={rate:g} is a factor on its formula, 1.0 in the paper; "
            f"with it the learning rate never exceeds {peak:.2g}"
        )


def _bfloat16(config: RunConfig) -> Iterator[str]:
    settings = {
        "precision=32-true": config.trainer["precision"] == "bf16-mixed",
        "loss.bfloat16=false": config.loss.bfloat16,
    }
    remedies = [remedy for remedy, needed in settings.items() if needed]
    if remedies and config.trainer["accelerator"] == "cpu" and _lacks_bfloat16():
        yield (
            "this processor has no instructions for products in bfloat16; float32 is probably "
            f"faster here: try {' '.join(remedies)}"
        )


def _lacks_bfloat16() -> bool:
    """False if torch cannot tell, as before its version 2.13."""
    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities) and not any(capabilities.get(name) for name in _BFLOAT16_INSTRUCTIONS)
