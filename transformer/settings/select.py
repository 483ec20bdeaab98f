"""The keys of ``select``, and of all that chooses among candidates."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from transformer.common.schema import Range, Settings
from transformer.settings.metrics import MetricsConfig
from transformer.settings.translator import TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class ChoiceKeys(Settings):
    """What chooses among candidates: BLEU with a reference, or a model of the reverse direction."""

    reference: Path | None = None
    reverse: str | None = None
    tokenize: str = MetricsConfig.tokenize
    lowercase: bool = MetricsConfig.lowercase
    to: str | None = None
    tag: str | None = None
    from_: str | None = None
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] | None = None
    trust: bool = False

    @property
    def metrics(self) -> MetricsConfig:
        """How BLEU compares a candidate with a reference."""
        return MetricsConfig(self.tokenize, self.lowercase)

    @property
    def reverse_model(self) -> TranslatorConfig | None:
        """The model of the reverse direction."""
        if self.reverse is None:
            return None
        return TranslatorConfig.of(self, self.reverse)


@dataclass(frozen=True, kw_only=True)
class SelectConfig(ChoiceKeys):
    """Lists of candidates, and what chooses from them; conf/select.yaml explains the keys."""

    nbest: Path
    output: Path
    source: Path | None = None
