"""The keys of ``report``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from transformer.common.schema import Settings


@dataclass(frozen=True, kw_only=True)
class ReportConfig(Settings):
    """A page of one or several runs, or a model card of one; conf/report.yaml explains the keys."""

    runs: Sequence[str | Path] = field(kw_only=False)
    format: Literal["html", "card"] = "html"
    output: Path | None = None
    library: Literal["transformers", "transformer"] = "transformers"
    repo: str | None = None
    license: str = "unknown"
    trust: bool = False

    def _objections(self) -> Iterator[str]:
        if not self.runs:
            yield "report needs a run: report RUN (or runs=[RUN])"
        if self.format == "card" and len(self.runs) > 1:
            yield f"format=card is of one run, and not of {len(self.runs)}; give one"
