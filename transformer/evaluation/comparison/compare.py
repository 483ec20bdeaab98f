"""Two or more systems on the same text: differences, their significance and location."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from transformer.evaluation.comparison import buckets
from transformer.evaluation.comparison.sentence_deltas import Movement, SentenceScores, movement
from transformer.evaluation.comparison.significance import TestedMetric, paired_tests
from transformer.evaluation.metrics import build_metric
from transformer.settings.evaluation import ComparisonKeys
from transformer.settings.metrics import MetricsConfig


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


def check_metrics(keys: ComparisonKeys, metrics: MetricsConfig) -> None:
    """Raise InputError for an unknown metric, or one whose package is missing."""
    for name in {*keys.names(metrics), keys.ranks_by(metrics)}:
        build_metric(name, metrics)
    metrics.bleu()  # whose tokenizer finds the words of the tables


def compare_systems(
    text: ComparedText,
    systems: Sequence[System],
    keys: ComparisonKeys,
    metrics: MetricsConfig,
    training: Iterable[str] | None = None,
) -> Comparison:
    """Compare every other system with the first.

    Args:
        text: The input and the references.
        systems: Each has as many hypotheses.
        keys: What is measured.
        metrics: How text is scored; its tokenizer also splits the words of known frequency.
        training: The target side of a text whose words are counted; None leaves that out.
    """
    check_metrics(keys, metrics)
    hypotheses = [system.hypotheses for system in systems]
    sources, references = text.sources, text.references
    built = [build_metric(name, metrics) for name in keys.names(metrics)]
    tested = paired_tests(hypotheses, references, built, keys, sources)
    chosen = build_metric(keys.chosen(metrics), metrics)
    by_length = buckets.scores_by_length(sources, hypotheses, references, chosen, keys.lengths)
    frequencies = None
    if training is not None:
        words = buckets.words_by(metrics.bleu())
        counts = Counter(word for line in training for word in words(line))
        # Of several references the first.
        right = [words(first) for first, *_ in references]
        given = [map(words, lines) for lines in hypotheses]
        frequencies = buckets.words_by_frequency(counts, given, right, keys.frequencies)
    by = keys.ranks_by(metrics)
    names = list(dict.fromkeys([*keys.names(metrics), by])) if len(systems) > 1 else [by]
    base, *rest = (SentenceScores(one, references, names, metrics, sources) for one in hypotheses)
    settings: dict[str, Any] = {"by": by, "better": metrics.better(by), "limit": keys.moved}
    movements = [movement(sources, references, base, other, **settings) for other in rest]
    signatures = {
        "length": str(chosen.get_signature()),
        "frequency": buckets.word_signature(metrics.bleu()),
        **base.signatures,
    }
    results = (keys.chosen(metrics), by_length, frequencies, movements, base)
    return Comparison(text, systems, tested, signatures, *results)
