"""The keys of ``tune``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from transformer.common.schema import Range
from transformer.settings.scoring import ScoringKeys

WeightsName = Literal["single", "average", "ema"]
"""Of one update; the mean of the newest checkpoints; the exponential moving average."""


@dataclass(frozen=True, kw_only=True)
class TuneConfig(ScoringKeys):
    """Weights and searches to try on the validation text; conf/tune.yaml explains the keys."""

    checkpoint: str | Path = field(kw_only=False)
    weights: Sequence[WeightsName] = ("single", "average", "ema")
    last: Annotated[int, Range(2)] = 5
    beam_sizes: Sequence[int] = (1, 2, 5, 10)
    length_penalties: Sequence[float] = (0.0, 0.6, 1.0, 1.4, 1.8)
    metric: str | None = None
    sentences: Annotated[int, Range(1)] | None = None
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] | None = None
