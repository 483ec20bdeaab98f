"""The keys of ``score``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from transformer.common.schema import Range, Settings
from transformer.settings.model import Precision
from transformer.settings.translator import Averaging, Form, TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(Settings):
    """Pairs whose targets are scored, and by which model; conf/score.yaml explains the keys."""

    checkpoint: str | Sequence[str] = field(kw_only=False)
    averaging: Averaging | None = None
    source: Path
    target: Path
    format: Form = "text"
    to: str | None = None
    tag: str | None = None
    from_: str | None = None
    device: str = "cpu"
    precision: Precision = "float32"
    batch_tokens: Annotated[int, Range(1)] | None = None
    trust: bool = False

    @property
    def translator(self) -> TranslatorConfig:
        """The model, or the ensemble."""
        return TranslatorConfig.of(self, self.checkpoint)
