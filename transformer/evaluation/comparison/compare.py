"""Two or more systems on the same text: differences, their significance and location."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Annotated, Any

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, out_of_range
from transformer.evaluation.comparison import buckets
from transformer.evaluation.comparison.sentence_deltas import Movement, SentenceScores, movement
from transformer.evaluation.comparison.significance import Resampling, TestedMetric, paired_tests
from transformer.evaluation.metrics import build_metric
from transformer.settings.metrics import MetricsConfig


@dataclass(frozen=True)
class ComparisonConfig:
    """What is measured, by ``conf/compare.yaml``."""

    scores: Sequence[str] | None
    scoring: MetricsConfig
    """Its tokenizer also splits the words of known frequency."""
    resampling: Resampling
    lengths: Sequence[int]
    frequencies: Sequence[int]
    moved: Annotated[int, Range(0)]
    moved_by: str | None

    def __post_init__(self) -> None:
        raise_objections(self._objections())
        for name in {*self.names, self.ranks_by}:
            build_metric(name, self.scoring)

    def _objections(self) -> Iterator[str]:
        yield from out_of_range(self, "compare")
        if not self.names or len(set(self.names)) < len(self.names):
            yield f"scores={list(self.names)} must be one or more, each once"
        for key in ("lengths", "frequencies"):
            edges = [0, *getattr(self, key)]
            if any(low >= high for low, high in pairwise(edges)):
                yield f"{key}={edges[1:]} must be numbers above 0 that rise"

    @property
    def names(self) -> Sequence[str]:
        return self.scoring.validated if self.scores is None else self.scores

    @property
    def chosen(self) -> str:
        """The metric that chooses checkpoints, if it is tested; else the first that is."""
        return self.scoring.choose if self.scoring.choose in self.names else self.names[0]

    @property
    def ranks_by(self) -> str:
        return self.moved_by or ("chrf" if "chrf" in self.names else self.chosen)


@dataclass(frozen=True)
class System:
    """The hypotheses of one system, one a line, under the name that the user gave."""

    name: str
    hypotheses: Sequence[str] = field(repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)
    """Their origin, as plain values, if known."""


@dataclass(frozen=True)
class ComparedText:
    """The input of the systems and the right outputs, one sentence a line."""

    name: str
    sources: Sequence[str] = field(repr=False)
    references: Sequence[Sequence[str]] = field(repr=False)


@dataclass(frozen=True)
class Comparison:
    """The results; the first of all sequences over systems is the base."""

    text: ComparedText
    systems: Sequence[System]
    metrics: Sequence[TestedMetric]
    signatures: Mapping[str, str]
    """Of ``length``, ``frequency``, and the metrics of sentences."""
    chosen: str
    by_length: Sequence[buckets.LengthBucket]
    by_frequency: Sequence[buckets.FrequencyBucket] | None
    movements: Sequence[Movement]
    base: SentenceScores
    """Each sentence of the base; without other systems only by the metric that ranks them."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; hypotheses only of the sentences in ``movements``."""
        lengths = {
            "signature": self.signatures["length"],
            "buckets": [
                {"label": one.label, "sentences": one.sentences, self.chosen: one.scores}
                for one in self.by_length
            ],
        }
        frequencies = None
        if self.by_frequency is not None:
            frequencies = {
                "signature": self.signatures["frequency"],
                "buckets": [asdict(bucket) for bucket in self.by_frequency],
            }
        return {
            "text": self.text.name,
            "chosen": self.chosen,
            "sentences": len(self.text.sources),
            "systems": [{"name": one.name, **one.about} for one in self.systems],
            "metrics": [asdict(metric) for metric in self.metrics],
            "by_length": lengths,
            "by_frequency": frequencies,
            "sentence_signatures": {
                name: signature
                for name, signature in self.signatures.items()
                if name not in ("length", "frequency")
            },
            "moved": [
                {"system": system.name, **moved.to_json()}
                for system, moved in zip(self.systems[1:], self.movements, strict=True)
            ],
        }


def compare(
    text: ComparedText,
    systems: Sequence[System],
    config: ComparisonConfig,
    training: Iterable[str] | None = None,
) -> Comparison:
    """Compare every other system with the first; ``training`` is the target side of a text."""
    hypotheses, scoring = [system.hypotheses for system in systems], config.scoring
    sources, references = text.sources, text.references
    metrics = [build_metric(name, scoring) for name in config.names]
    tested = paired_tests(hypotheses, references, metrics, config.resampling, sources)
    chosen = build_metric(config.chosen, scoring)
    by_length = buckets.scores_by_length(sources, hypotheses, references, chosen, config.lengths)
    frequencies = None
    if training is not None:
        words = buckets.words_by(scoring.bleu())
        counts = Counter(word for line in training for word in words(line))
        # Of several references the first.
        right = [words(first) for first, *_ in references]
        given = [map(words, lines) for lines in hypotheses]
        frequencies = buckets.words_by_frequency(counts, given, right, config.frequencies)
    by = config.ranks_by
    names = list(dict.fromkeys([*config.names, by])) if len(systems) > 1 else [by]
    base, *rest = (SentenceScores(one, references, names, scoring, sources) for one in hypotheses)
    settings: dict[str, Any] = {"by": by, "better": scoring.better(by), "limit": config.moved}
    movements = [movement(sources, references, base, other, **settings) for other in rest]
    signatures = {
        "length": str(chosen.get_signature()),
        "frequency": buckets.word_signature(scoring.bleu()),
        **base.signatures,
    }
    results = (config.chosen, by_length, frequencies, movements, base)
    return Comparison(text, systems, tested, signatures, *results)
