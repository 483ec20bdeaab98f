"""The keys under ``recovery.``."""

from dataclasses import dataclass
from typing import Annotated

from transformer.common.schema import Range, Settings


@dataclass(frozen=True)
class RecoveryConfig(Settings, group="recovery"):
    """Criteria of a bad update, and the reaction; ``conf/train.yaml`` explains the keys."""

    explosion: Annotated[float, Range(above=0)] | None = 5.0
    skips: Annotated[int, Range(1)] = 10
    returns: Annotated[int, Range(0)] = 3
    lr_factor: Annotated[float, Range(above=0, most=1)] = 0.5
