"""Settings of ``export``; conf/export.yaml explains them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from transformer.common.schema import Range, Settings
from transformer.settings.translator import TranslatorConfig

Quantization = Literal["float32", "int8", "int8_float32", "int16", "float16", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Settings):
    """What is exported, and how it is verified; ``format`` is a key of ``FORMATS``."""

    checkpoint: str = field(kw_only=False)
    format: str = "ctranslate2"
    quantization: Quantization = "float32"
    sentences: Annotated[int, Range(1)] | None = 500
    license: str = "unknown"
    max_bleu_loss: float = 0.3
    output: Path | None = None
    onnxruntime_web: Path | None = None
    repo: str | None = None
    """The name of the model on the Hub, for its model card."""
    heads_off: str | Sequence[str] | None = None
    batch_tokens: Annotated[int, Range(1)] = 4096
    trust: bool = False

    @property
    def translator(self) -> TranslatorConfig:
        """The translator that is exported, with the search of its run."""
        return TranslatorConfig.of(self, self.checkpoint)
