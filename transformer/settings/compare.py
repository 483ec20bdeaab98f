"""The keys of ``compare``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from transformer.common.schema import Range, Settings
from transformer.settings.decoding import SearchConfig
from transformer.settings.metrics import MetricsConfig
from transformer.settings.model import Precision
from transformer.settings.scoring import ScoredTextKeys
from transformer.settings.translator import TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class Resampling(Settings):
    """Number of resamples and their seed."""

    bootstrap: Annotated[int, Range(1)] = 1000
    randomization: Annotated[int, Range(1)] = 10_000
    seed: Annotated[int, Range(1)] = 12345
    """Of both; with 0 sacreBLEU would draw without a seed."""


@dataclass(frozen=True, kw_only=True)
class ComparisonKeys(Resampling):
    """What is measured of several systems; the metrics of text are settings of their own."""

    scores: Sequence[str] | None = None
    lengths: Sequence[int] = (6, 11, 16, 21, 31, 51)
    frequencies: Sequence[int] = (1, 2, 5, 10, 100, 1000)
    moved: Annotated[int, Range(0)] = 5
    moved_by: str | None = None

    def _objections(self) -> Iterator[str]:
        yield from super()._objections()
        scores = self.scores
        if scores is not None and (not scores or len(set(scores)) < len(scores)):
            yield f"scores={list(scores)} must be one or more, each once"
        for key, numbers in {"lengths": self.lengths, "frequencies": self.frequencies}.items():
            if any(low >= high for low, high in pairwise([0, *numbers])):
                yield f"{key}={list(numbers)} must be numbers above 0 that rise"

    def names(self, metrics: MetricsConfig) -> Sequence[str]:
        """The metrics that are tested."""
        return metrics.validated if self.scores is None else self.scores

    def chosen(self, metrics: MetricsConfig) -> str:
        """The metric that chooses checkpoints, if it is tested; else the first that is."""
        names = self.names(metrics)
        return metrics.choose if metrics.choose in names else names[0]

    def ranks_by(self, metrics: MetricsConfig) -> str:
        """The metric that ranks sentences."""
        return self.moved_by or ("chrf" if "chrf" in self.names(metrics) else self.chosen(metrics))


@dataclass(frozen=True, kw_only=True)
class CompareConfig(ScoredTextKeys, ComparisonKeys):
    """Systems, and the text on which they are compared; conf/compare.yaml explains the keys."""

    runs: Sequence[str | Path] = field(kw_only=False)
    """Run directories, checkpoints, models of the Hub, and files of hypotheses."""
    split: str = "validation"
    to: str | None = None
    tag: str | None = None
    from_: str | None = None
    training: bool | Path = True
    device: str = "cpu"
    precision: Precision | None = None
    batch_tokens: Annotated[int, Range(1)] | None = None
    decoding: Mapping[str, Any] | SearchConfig = field(default_factory=dict)

    def _objections(self) -> Iterator[str]:
        yield from super()._objections()
        if len(self.runs) < 2:
            yield (
                "compare takes two systems or more: compare RUN_A RUN_B (or runs=[A,B]); each is a "
                "run directory, a checkpoint or a file of hypotheses"
            )

    def translator(self, run: Path) -> TranslatorConfig:
        """The translator of a run."""
        return TranslatorConfig.of(self, str(run))
