"""The keys under ``optimizer.``."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from transformer.common.errors import raise_objections
from transformer.common.schema import Range


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019).

    ``lr`` is the peak, or the factor of ``noam``. ``weight_decay`` applies to matrices only.
    """

    name: Literal["adam", "adamw"] = "adam"
    lr: Annotated[float, Range(above=0, below=math.inf)] = 2e-3
    betas: tuple[float, float] = (0.9, 0.98)
    eps: Annotated[float, Range(0, below=math.inf)] = 1e-9
    weight_decay: Annotated[float, Range(0, below=math.inf)] = 0.0

    def __post_init__(self) -> None:
        wrong = not all(0 <= beta < 1 for beta in self.betas)
        message = f"optimizer.betas={list(self.betas)} must be from 0 and below 1"
        raise_objections([message] if wrong else [])
