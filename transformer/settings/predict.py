"""The keys of ``predict``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from transformer.common.schema import Range, Settings
from transformer.settings.translator import Form


@dataclass(frozen=True, kw_only=True)
class PredictConfig(Settings):
    """A tagger or a language model, and what it reads; conf/predict.yaml explains the keys."""

    checkpoint: str = field(kw_only=False)
    input: Path | None = None
    output: Path | None = None
    format: Form = "text"
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] | None = None
    trust: bool = False
