"""Settings of ``push``; conf/push.yaml explains them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from transformer.common.schema import Range, Settings
from transformer.settings.export import ExportConfig


@dataclass(frozen=True, kw_only=True)
class PushConfig(Settings):
    """What is uploaded to the Hugging Face Hub, and under which name."""

    checkpoint: str = field(kw_only=False)
    repo: str
    private: bool = False
    dry_run: bool = False
    output: Path | None = None
    format: Literal["huggingface", "safetensors"] = "huggingface"
    license: str = "unknown"
    sentences: Annotated[int, Range(1)] | None = 500
    max_bleu_loss: float = 0.3
    batch_tokens: Annotated[int, Range(1)] = 4096
    trust: bool = False

    def export(self, repo: str) -> ExportConfig:
        """The export that is uploaded as the model ``repo``."""
        return ExportConfig(
            self.checkpoint,
            format=self.format,
            repo=repo,
            license=self.license,
            sentences=self.sentences,
            max_bleu_loss=self.max_bleu_loss,
            batch_tokens=self.batch_tokens,
            trust=self.trust,
        )
