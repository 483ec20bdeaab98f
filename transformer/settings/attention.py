"""The keys of ``attention``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from transformer.common.schema import Range, Settings
from transformer.settings.decoding import SearchConfig
from transformer.settings.translator import TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(Settings):
    """A sentence whose attention is shown; conf/attention.yaml explains the keys."""

    checkpoint: str = field(kw_only=False)
    text: str
    target: str | None = None
    to: str | None = None
    tag: str | None = None
    from_: str | None = None
    output: Path | None = None
    split: str = "validation"
    sentences: Annotated[int, Range(0)] = 200
    alignment_threshold: float | None = None
    heads_off: str | Sequence[str] | None = None
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] = 4096
    trust: bool = False
    decoding: Mapping[str, Any] | SearchConfig = field(default_factory=dict)

    @property
    def translator(self) -> TranslatorConfig:
        """The translator of the model."""
        return TranslatorConfig.of(self, self.checkpoint)
