"""The keys of ``average``."""

from dataclasses import dataclass, field
from pathlib import Path

from transformer.common.schema import Settings


@dataclass(frozen=True, kw_only=True)
class AverageConfig(Settings):
    """The newest checkpoints of a run, to be averaged; conf/average.yaml explains the keys."""

    checkpoint: Path = field(kw_only=False)
    last: int | None = None
    output: Path | None = None
