"""The keys of ``consolidate``."""

from dataclasses import dataclass, field
from pathlib import Path

from transformer.common.schema import Settings


@dataclass(frozen=True, kw_only=True)
class ConsolidateConfig(Settings):
    """A checkpoint of several files, and the file to write; conf/consolidate.yaml explains them."""

    checkpoint: Path = field(kw_only=False)
    output: Path
