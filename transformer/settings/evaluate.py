"""The keys of ``evaluate``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer.settings.scoring import ScoredTextKeys
from transformer.settings.translator import TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(ScoredTextKeys, TranslatorConfig):
    """A model, and the text on which it is scored; conf/evaluate.yaml explains the keys.

    Models that do not translate read ``checkpoint``, ``split``, ``output``, ``device``,
    ``batch_tokens`` and ``trust`` alone.
    """

    scores: Sequence[str] | None = None
    alignment: bool | Path | None = False
    terms: Path | None = None
    constrain: bool = False
    stress: bool = False
