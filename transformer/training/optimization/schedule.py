"""The learning rate as a function of the update.

Each schedule is a factor on ``optimizer.lr``; none knows the optimiser.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer.common.errors import InputError, raise_objections
from transformer.common.schema import Range, out_of_range


@dataclass(frozen=True)
class ScheduleConfig:
    """Which schedule, and how long it warms up.

    Attributes:
        name: ``inverse_sqrt``, ``noam``, ``cosine`` or ``constant``.
        warmup: Updates until the peak, rising linearly.
        total: Updates until the cosine reaches ``floor``; no other schedule has an end.
        floor: Lowest factor of the cosine.
    """

    name: Literal["inverse_sqrt", "noam", "cosine", "constant"]
    warmup: Annotated[int, Range(0)]
    total: int | None = None
    floor: Annotated[float, Range(0, 1)] = 0.0

    def __post_init__(self) -> None:
        raise_objections(out_of_range(self, "schedule"))
        if self.name == "cosine" and (self.total is None or self.total < 1):
            raise InputError(
                f"schedule.total={self.total}: a cosine needs its last update; set "
                "trainer.max_steps or schedule.total, or take schedule=inverse_sqrt"
            )


def inverse_sqrt(update: int, warmup: int) -> float:
    """Rise linearly to 1 at ``warmup``, then fall as ``1 / sqrt(update)``."""
    if update < warmup:
        return update / warmup
    return math.sqrt(max(warmup, 1) / update)


def noam(update: int, warmup: int, d_model: int) -> float:
    """``d_model^-0.5 min(update^-0.5, update warmup^-1.5)``: Vaswani et al. 2017, equation 3."""
    return d_model**-0.5 * min(update**-0.5, update * max(warmup, 1) ** -1.5)


def cosine(update: int, warmup: int, total: int, floor: float) -> float:
    """Rise linearly, then half a cosine down to ``floor`` (Loshchilov and Hutter 2017)."""
    if update < warmup:
        return update / warmup
    progress = min((update - warmup) / max(total - warmup, 1), 1.0)
    return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2


def schedule_factor(config: ScheduleConfig, d_model: int) -> Callable[[int], float]:
    """The factor of the n-th update, counted from 1."""
    warmup, total = config.warmup, config.total or 0
    formulas: dict[str, Callable[[int], float]] = {
        "inverse_sqrt": lambda update: inverse_sqrt(update, warmup),
        "noam": lambda update: noam(update, warmup, d_model),
        "cosine": lambda update: cosine(update, warmup, total, config.floor),
        "constant": lambda update: min(update / warmup, 1.0) if warmup else 1.0,
    }
    return formulas[config.name]


def build_schedule(config: ScheduleConfig, optimizer: Optimizer, d_model: int) -> LambdaLR:
    """A scheduler that steps once per update."""
    factor = schedule_factor(config, d_model)
    # torch counts finished updates; the formulas take the number of the next one.
    return LambdaLR(optimizer, lambda done: factor(done + 1))
