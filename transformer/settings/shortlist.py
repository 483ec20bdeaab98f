"""The keys of ``shortlist``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from transformer.common.schema import Range, Settings

Count = Annotated[int, Range(1)]


@dataclass(frozen=True, kw_only=True)
class ShortlistConfig(Settings):
    """The text that is counted, and how many tokens are kept; conf/shortlist.yaml explains the
    keys."""

    checkpoint: str = field(kw_only=False)
    source: Path | None = None
    target: Path | None = None
    alignment: Path | None = None
    sentences: Count = 200_000
    frequent: Count = 100
    best: Count = 100
    iterations: Count = 4
    output: Path | None = None
    trust: bool = False
