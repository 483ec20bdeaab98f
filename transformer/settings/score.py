"""The keys of ``score``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from transformer.common.schema import Range, Settings
from transformer.settings.model import Precision
from transformer.settings.translator import Averaging, Form, Launch, TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(Settings):
    """Pairs whose targets are scored, and by which model; conf/score.yaml explains the keys."""

    checkpoint: str | Sequence[str] = field(kw_only=False)
    averaging: Averaging | None = None
    source: str | Path
    target: str | Path | None = None
    """None with a ``source`` that has both sides."""
    output: str | Path | None = None
    """With ``launch``, a folder."""
    launch: Launch | None = None
    format: Form = "text"
    to: str | None = None
    tag: str | None = None
    from_: str | None = None
    device: str = "cpu"
    precision: Precision = "float32"
    batch_tokens: Annotated[int, Range(1)] | None = None
    trust: bool = False

    def _objections(self) -> Iterator[str]:
        yield from super()._objections()
        if (self.launch is None) != (self.output is None):
            yield "launch=ray and output=FOLDER go together; give both or neither"

    @property
    def translator(self) -> TranslatorConfig:
        """The model, or the ensemble."""
        return TranslatorConfig.of(self, self.checkpoint)
