"""The learning rate as a function of the update: each schedule is a factor of ``optimizer.lr``."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer.settings.training import ScheduleConfig


def noam(update: int, warmup: int, d_model: int) -> float:
    """``d_model^-0.5 min(update^-0.5, update warmup^-1.5)``: Vaswani et al. 2017, equation 3."""
    return d_model**-0.5 * min(update**-0.5, update * max(warmup, 1) ** -1.5)


def schedule_factor(config: ScheduleConfig, d_model: int, update: int) -> float:
    """The factor of the n-th update, counted from 1: it rises linearly to 1 at ``warmup``.

    Then ``inverse_sqrt`` falls as ``1 / sqrt(update)``, ``cosine`` by half a cosine to ``floor``
    (Loshchilov and Hutter 2017), and ``constant`` stays.
    """
    warmup = config.warmup
    if config.name == "noam":
        return noam(update, warmup, d_model)
    if update < warmup:
        return update / warmup
    if config.name == "inverse_sqrt":
        return math.sqrt(max(warmup, 1) / update)
    if config.name == "constant":
        return 1.0
    progress = min((update - warmup) / max((config.total or 0) - warmup, 1), 1.0)
    return config.floor + (1 - config.floor) * (1 + math.cos(math.pi * progress)) / 2


def build_schedule(config: ScheduleConfig, optimizer: Optimizer, d_model: int) -> LambdaLR:
    """A scheduler that steps once per update."""
    # torch counts finished updates; the formulas take the number of the next update.
    return LambdaLR(optimizer, lambda done: schedule_factor(config, d_model, done + 1))
