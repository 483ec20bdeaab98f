"""The keys under ``schedule.``."""

from dataclasses import dataclass
from typing import Annotated, Literal

from transformer.common.schema import Range, Settings


@dataclass(frozen=True)
class ScheduleConfig(Settings, group="schedule"):
    """Which schedule, and how long it warms up; ``conf/schedule`` explains the keys."""

    name: Literal["inverse_sqrt", "noam", "cosine", "constant"] = "cosine"
    warmup: Annotated[int, Range(0)] = 1000
    total: int | None = None
    floor: Annotated[float, Range(0, 1)] = 0.0
