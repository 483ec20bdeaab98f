"""The keys of ``text``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformer.common.schema import Settings
from transformer.settings.data import DataConfig


@dataclass(frozen=True, kw_only=True)
class TextConfig(Settings):
    """A corpus as plain files, ``OUTPUT/SPLIT.LANGUAGE``; conf/text.yaml explains the keys."""

    output: Path
    data: DataConfig = field(default_factory=DataConfig)
    splits: Sequence[str] | None = None
