"""The keys of ``heads``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from transformer.common.schema import Range, Settings
from transformer.settings.decoding import SearchConfig
from transformer.settings.translator import TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(Settings):
    """A model whose heads are ranked; conf/heads.yaml explains the keys."""

    checkpoint: str = field(kw_only=False)
    metric: str | None = "loss"
    split: str = "validation"
    sentences: Annotated[int, Range(1)] = 500
    prune: float | Sequence[float] = ()
    heads_off: str | Sequence[str] | None = None
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] = 1024
    trust: bool = False
    decoding: Mapping[str, Any] | SearchConfig = field(default_factory=dict)

    def _objections(self) -> Iterator[str]:
        fractions = self.fractions
        in_range = all(0 < fraction <= 1 for fraction in fractions)
        if not in_range or len(set(fractions)) < len(fractions):
            yield f"prune={list(fractions)} must be fractions of the heads, each once, above 0 to 1"

    @property
    def fractions(self) -> Sequence[float]:
        """The values of ``prune``."""
        return (self.prune,) if isinstance(self.prune, float | int) else self.prune

    @property
    def translator(self) -> TranslatorConfig:
        """The translator of the model."""
        return TranslatorConfig.of(self, self.checkpoint)
