"""Settings of ``import``; conf/import.yaml explains them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformer.common.schema import Settings


@dataclass(frozen=True, kw_only=True)
class ImportConfig(Settings):
    """Which model of another framework becomes a run.

    Without ``output`` a model of the Hub becomes a run in the cache, once for each of its commits.
    """

    checkpoint: str = field(kw_only=False)
    output: Path | None = None
    languages: str | None = None
    validation: str | Sequence[str] | None = None
    test: str | Sequence[str] | None = None
