"""The keys of ``stress``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from transformer.common.schema import Range
from transformer.settings.decoding import SearchConfig
from transformer.settings.model import Precision
from transformer.settings.scoring import ScoredTextKeys
from transformer.settings.translator import Averaging, TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class StressConfig(ScoredTextKeys):
    """A translator, and the text that is disturbed; conf/stress.yaml explains the keys."""

    checkpoint: str | Sequence[str] = field(kw_only=False)
    averaging: Averaging | None = None
    sentences: Annotated[int, Range(1)] | Literal["auto"] | None = "auto"
    disturbances: Sequence[str] | None = None
    seed: Annotated[int, Range(0)] = 1
    metric: str | None = None
    to: str | None = None
    tag: str | None = None
    from_: str | None = None
    heads_off: str | Sequence[str] | None = None
    device: str = "cpu"
    precision: Precision | None = None
    batch_tokens: Annotated[int, Range(1)] | None = None
    decoding: Mapping[str, Any] | SearchConfig = field(default_factory=dict)

    @property
    def translator(self) -> TranslatorConfig:
        """The translator of the model."""
        return TranslatorConfig.of(self, self.checkpoint)
