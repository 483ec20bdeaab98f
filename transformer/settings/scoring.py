"""Keys of the commands that score text: what they change of the metrics of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer.common.schema import Settings
from transformer.settings.metrics import Better


@dataclass(frozen=True, kw_only=True)
class ScoringKeys(Settings):
    """Changes of a run's metrics, as ``MetricsConfig`` explains them; None is as the run scores."""

    tokenize: str | None = None
    lowercase: bool | None = None
    custom: str | None = None
    custom_better: Better | None = None
    comet: str | None = None
    trust: bool = False
    """Read text elsewhere, and run code, that the checkpoint of the run names."""


@dataclass(frozen=True, kw_only=True)
class ScoredTextKeys(ScoringKeys):
    """Keys of ``evaluate``, ``compare`` and ``stress``: the text, and where results are written."""

    split: str = "test"
    """Of the run's corpus; not read with ``source``."""
    source: Path | None = None
    reference: Path | Sequence[Path] | None = None
    """One or more files; None with a ``source`` that has both sides."""
    output: Path | None = None
