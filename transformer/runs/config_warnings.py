"""Warnings about settings of a run; it changes none."""

import logging

import torch

from transformer.training.config import RunConfig
from transformer.training.optimization.schedule import noam
from transformer.training.precision import multiplies_bfloat16

logger = logging.getLogger(__name__)

_MIN_FACTOR = 0.05
"""A smaller factor of ``noam`` is probably a learning rate, meant for another schedule."""


def warn_about_config(config: RunConfig) -> None:
    """Log a warning for each setting that probably does not do what the user wants."""
    name, warmup = config.schedule.name, config.schedule.warmup
    updates, rate = config.trainer.max_steps, config.optimizer.lr
    if 0 < updates <= warmup:
        logger.warning(
            "schedule.warmup=%d: the learning rate still rises when training ends, after %d "
            "updates; in a run that is to learn, set it lower or trainer.max_steps higher",
            *(warmup, updates),
        )
    if name == "noam" and rate < _MIN_FACTOR:
        peak = rate * noam(max(warmup, 1), warmup, config.model["d_model"])
        logger.warning(
            "schedule=noam: optimizer.lr=%g is a factor on its formula, 1.0 in the paper; with it "
            "the learning rate never exceeds %.2g",
            *(rate, peak),
        )
    on_cpu = config.trainer.accelerator == "cpu"
    narrow = config.trainer.precision == "bf16-mixed" or config.loss.bfloat16 is True
    if on_cpu and narrow and multiplies_bfloat16(torch.device("cpu")) is False:
        logger.warning(
            "this processor has no instructions for products in bfloat16; float32 is probably "
            "faster here: try precision=auto loss.bfloat16=auto"
        )
