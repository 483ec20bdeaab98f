"""The keys of the commands that score, compare or choose: evaluate, compare, score, tune …"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from transformer.common.schema import Range, Settings
from transformer.settings.decoding import SearchConfig
from transformer.settings.metrics import Better, MetricsConfig
from transformer.settings.model import Precision
from transformer.settings.translator import Averaging, Form, Launch, TranslatorConfig


@dataclass(frozen=True, kw_only=True)
class ScoringKeys(Settings):
    """Changes of a run's metrics, as ``MetricsConfig`` explains them; None is as the run scores."""

    tokenize: str | None = None
    lowercase: bool | None = None
    custom: str | None = None
    custom_better: Better | None = None
    comet: str | None = None
    trust: bool = False
    """Read text elsewhere, and run code, that the checkpoint of the run names."""

    @property
    def own_metrics(self) -> list[str]:
        """The metrics that these keys name."""
        return [name for name in ("custom", "comet") if getattr(self, name) is not None]


@dataclass(frozen=True, kw_only=True)
class ScoredTextKeys(ScoringKeys):
    """Keys of ``evaluate``, ``compare`` and ``stress``: the text, and where results are written."""

    split: str = "test"
    """Of the run's corpus; not read with ``source``."""
    source: Path | None = None
    reference: Path | Sequence[Path] | None = None
    """One or more files; None with a ``source`` that has both sides."""
    output: Path | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(ScoredTextKeys, TranslatorConfig):
    """A model, and the text on which it is scored; conf/evaluate.yaml explains the keys.

    Models that do not translate read ``checkpoint``, ``split``, ``output``, ``device``,
    ``batch_tokens`` and ``trust`` alone.
    """

    scores: Sequence[str] | None = None
    alignment: bool | Path | None = False
    terms: Path | None = None
    constrain: bool = False
    stress: bool = False

    def _objections(self) -> Iterator[str]:
        yield from super()._objections()
        if self.constrain and self.terms is None:
            yield "constrain=true needs terms=FILE, the phrases that it requires"


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

    def names(self, metrics: MetricsConfig) -> Sequence[str]:
        """The metrics that are tested: ``scores``, or those of the run, and ``own_metrics``."""
        return list(dict.fromkeys([*super().names(metrics), *self.own_metrics]))

    def translator(self, run: Path) -> TranslatorConfig:
        """The translator of a run."""
        return TranslatorConfig.of(self, str(run))


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


@dataclass(frozen=True, kw_only=True)
class ChoiceKeys(Settings):
    """What chooses among candidates: BLEU with a reference, or a model of the reverse direction."""

    reference: Path | None = None
    reverse: str | None = None
    tokenize: str = MetricsConfig.tokenize
    lowercase: bool = MetricsConfig.lowercase
    to: str | None = None
    tag: str | None = None
    from_: str | None = None
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] | None = None
    trust: bool = False

    @property
    def metrics(self) -> MetricsConfig:
        """How BLEU compares a candidate with a reference."""
        return MetricsConfig(self.tokenize, self.lowercase)

    @property
    def reverse_model(self) -> TranslatorConfig | None:
        """The model of the reverse direction."""
        if self.reverse is None:
            return None
        return TranslatorConfig.of(self, self.reverse)


@dataclass(frozen=True, kw_only=True)
class SelectConfig(ChoiceKeys):
    """Lists of candidates, and what chooses from them; conf/select.yaml explains the keys."""

    nbest: Path
    output: Path
    source: Path | None = None


WeightsName = Literal["single", "average", "ema"]
"""Of one update; the mean of the newest checkpoints; the exponential moving average."""


@dataclass(frozen=True, kw_only=True)
class TuneConfig(ScoringKeys):
    """Weights and searches to try on the validation text; conf/tune.yaml explains the keys."""

    checkpoint: str | Path = field(kw_only=False)
    weights: Sequence[WeightsName] = ("single", "average", "ema")
    last: Annotated[int, Range(2)] = 5
    beam_sizes: Sequence[int] = (1, 2, 5, 10)
    length_penalties: Sequence[float] = (0.0, 0.6, 1.0, 1.4, 1.8)
    metric: str | None = None
    sentences: Annotated[int, Range(1)] | None = None
    device: str = "cpu"
    batch_tokens: Annotated[int, Range(1)] | None = None


@dataclass(frozen=True, kw_only=True)
class StressConfig(ScoredTextKeys):
    """A translator, and the text that is disturbed; conf/stress.yaml explains the keys."""

    checkpoint: str | Sequence[str] = field(kw_only=False)
    averaging: Averaging | None = None
    sentences: Annotated[int, Range(1)] | Literal["auto"] | None = "auto"
    disturbances: Sequence[str] | None = None
    seed: Annotated[int, Range(0)] = 1
    metric: str | None = None
    to: str | None = None
    tag: str | None = None
    from_: str | None = None
    heads_off: str | Sequence[str] | None = None
    device: str = "cpu"
    precision: Precision | None = None
    batch_tokens: Annotated[int, Range(1)] | None = None
    decoding: Mapping[str, Any] | SearchConfig = field(default_factory=dict)

    @property
    def translator(self) -> TranslatorConfig:
        """The translator of the model."""
        return TranslatorConfig.of(self, self.checkpoint)
