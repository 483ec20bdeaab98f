"""The keys under ``optimizer.``."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from transformer.common.schema import Range, Settings


@dataclass(frozen=True)
class OptimizerConfig(Settings, group="optimizer"):
    """Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019).

    ``lr`` is the peak, or the factor of ``noam``. ``weight_decay`` applies to matrices only.
    """

    name: Literal["adam", "adamw"] = "adam"
    lr: Annotated[float, Range(above=0, below=math.inf)] = 2e-3
    betas: tuple[float, float] = (0.9, 0.98)
    eps: Annotated[float, Range(0, below=math.inf)] = 1e-9
    weight_decay: Annotated[float, Range(0, below=math.inf)] = 0.0

    def _objections(self) -> Iterator[str]:
        if not all(0 <= beta < 1 for beta in self.betas):
            yield f"optimizer.betas={list(self.betas)} must be from 0 and below 1"
