"""What a run is told of its settings before it begins. It changes none."""

import logging

import torch

from transformer.training.config import RunConfig
from transformer.training.optimization.schedule import noam

logger = logging.getLogger(__name__)

_LEAST_FACTOR = 0.05
"""A factor of ``noam`` below is more likely a learning rate, meant for another schedule."""

_BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
"""Instruction sets that multiply in bfloat16, two of x86-64 and that of ARM."""


def warn_about_warmup(config: RunConfig) -> None:
    """Where the learning rate would not reach its peak, or fall from it at once."""
    warmup, updates = config.schedule.warmup, config.trainer["max_steps"]
    end = config.schedule.total
    if config.schedule.name == "cosine" and end is not None and end <= warmup < updates:
        logger.warning(
            "schedule.warmup=%d: the cosine ends at schedule.total=%d, so that the learning rate "
            "falls from its peak to schedule.floor at once",
            warmup,
            end,
        )
    if 0 < updates <= warmup:
        logger.warning(
            "schedule.warmup=%d: the learning rate still rises when training ends, after %d "
            "updates; in a run that is to learn, set it lower or trainer.max_steps higher",
            *(warmup, updates),
        )


def warn_about_factor(config: RunConfig) -> None:
    """Where the factor of ``noam`` looks like a learning rate."""
    warmup, factor = config.schedule.warmup, config.optimizer.lr
    if config.schedule.name == "noam" and factor < _LEAST_FACTOR:
        peak = factor * noam(max(warmup, 1), warmup, config.model["d_model"])
        logger.warning(
            "schedule=noam: optimizer.lr=%g is a factor on its formula, 1.0 in the paper; with it "
            "the learning rate never exceeds %.2g",
            factor,
            peak,
        )


def warn_about_bfloat16(config: RunConfig) -> None:
    """Where the processor has to work products in bfloat16 out by way of float32."""
    remedies = []
    if config.trainer["precision"] == "bf16-mixed":
        remedies.append("precision=32-true")
    if config.loss.bfloat16:
        remedies.append("loss.bfloat16=false")
    if remedies and config.trainer["accelerator"] == "cpu" and _lacks_bfloat16():
        logger.warning(
            "this processor has no instructions for products in bfloat16; float32 is probably "
            "faster here: try %s",
            " ".join(remedies),
        )


def _lacks_bfloat16() -> bool:
    """False where torch cannot tell, as before its version 2.13."""
    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    told = torch.cpu.get_capabilities()
    return bool(told) and not any(told.get(name) for name in _BFLOAT16_INSTRUCTIONS)
