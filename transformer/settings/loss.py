"""The keys under ``loss.``."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from transformer.common.schema import Range, Settings

Consistency = Literal["none", "r_drop"]


@dataclass(frozen=True)
class LossConfig(Settings, group="loss"):
    """Settings of the loss; ``conf/loss/label_smoothed.yaml`` has the defaults, and explains them.

    ``bfloat16`` multiplies in the fused form, with a relative error of the gradient of 3e-3. Guided
    alignment: guided_alignment.py; ``consistency``: r_drop.py.
    """

    label_smoothing: Annotated[float, Range(0, below=1)] = 0.1
    chunk: Annotated[int, Range(0)] = 512
    bfloat16: bool | Literal["auto"] = False
    alignment_weight: Annotated[float, Range(0)] = 0.0
    alignment_layer: int | None = None
    alignment_head: int = 0
    consistency: Consistency = "none"
    consistency_weight: Annotated[float, Range(0, below=math.inf)] = 0.0

    def _objections(self) -> Iterator[str]:
        return _contradictions(self)


def _contradictions(config: LossConfig) -> Iterator[str]:
    kind = config.consistency
    if config.bfloat16 and not config.chunk:
        value = str(config.bfloat16).lower()
        yield f"loss.bfloat16={value} needs the fused form; set loss.chunk=512"
    if kind != "none" and not config.consistency_weight:
        yield f"loss.consistency={kind} needs loss.consistency_weight above 0"
    if kind != "none" and config.alignment_weight:
        yield (
            f"loss.alignment_weight={config.alignment_weight} guides one pass, and loss.consistency"
            f"={kind} makes two; set loss.alignment_weight=0 or loss.consistency=none"
        )
