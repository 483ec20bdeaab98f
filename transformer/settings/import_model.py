"""Settings of ``import``; conf/import.yaml explains them."""

from collections.abc import Iterator, Sequence
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

    def _objections(self) -> Iterator[str]:
        of_this_run = (self.languages, self.validation, self.test)
        if self.output is None and of_this_run != (None, None, None):
            yield "languages=, validation= and test= are of a run of its own; give output="
