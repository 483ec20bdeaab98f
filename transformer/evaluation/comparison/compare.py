"""Two or more systems on the same text: differences to the first, their significance and location.

It knows raw text only: neither models nor files, nor how the result is shown.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from transformer.common.errors import InputError, raise_objections
from transformer.common.schema import Range, out_of_range
from transformer.evaluation.comparison.buckets import (
    FrequencyBucket,
    LengthBucket,
    bleu_by_length,
    check_edges,
    word_signature,
    words_by,
    words_by_frequency,
)
from transformer.evaluation.comparison.sentence_deltas import By, Movement, SentenceScores, movement
from transformer.evaluation.comparison.significance import Resampling, TestedMetric, paired_tests
from transformer.evaluation.metrics import MetricsConfig, build_metric


@dataclass(frozen=True)
class ComparisonConfig:
    """What is measured; the values are in ``conf/compare.yaml``.

    Raises:
        InputError: A value is unknown, repeated, or out of range.
    """

    scores: Sequence[str]
    """Of bleu, chrf, ter."""
    scoring: MetricsConfig
    """Its tokenizer also splits the words of known frequency."""
    resampling: Resampling
    """Of the paired tests."""
    lengths: Sequence[int]
    """The first number of source words of each bucket after the first."""
    frequencies: Sequence[int]
    """The first frequency of each bucket after the first."""
    moved: Annotated[int, Range(0)]
    """Sentences to show in each direction."""
    moved_by: By
    """The metric that ranks them."""

    def __post_init__(self) -> None:
        raise_objections(out_of_range(self, "compare"))
        if not self.scores or len(set(self.scores)) < len(self.scores):
            raise InputError(f"scores={list(self.scores)} must be one or more, each once")
        for name in self.scores:
            build_metric(name, self.scoring)
        check_edges(self.lengths, "lengths")
        check_edges(self.frequencies, "frequencies")


@dataclass(frozen=True)
class System:
    """The hypotheses of one system, one a line, under the name that the user gave."""

    name: str
    hypotheses: Sequence[str] = field(repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)
    """Their origin, as plain values, if known."""


@dataclass(frozen=True)
class ComparedText:
    """The text that the systems translate, one sentence a line."""

    name: str
    sources: Sequence[str] = field(repr=False)
    references: Sequence[str] = field(repr=False)


@dataclass(frozen=True)
class Comparison:
    """The results; the first of all sequences over systems is the base."""

    text: ComparedText
    systems: Sequence[System]
    metrics: Sequence[TestedMetric]
    signatures: Mapping[str, str]
    """Of ``length``, ``frequency``, and the scores of sentences, ``bleu`` and ``chrf``."""
    by_length: Sequence[LengthBucket]
    by_frequency: Sequence[FrequencyBucket] | None
    """None without training text."""
    movements: Sequence[Movement]
    """Of each system but the base."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; hypotheses only of the sentences in ``movements``."""

        def signed(name: str, buckets: Sequence[Any]) -> dict[str, Any]:
            return {"signature": self.signatures[name], "buckets": list(map(asdict, buckets))}

        frequent = self.by_frequency
        return {
            "text": self.text.name,
            "sentences": len(self.text.sources),
            "systems": [{"name": one.name, **one.about} for one in self.systems],
            "metrics": [asdict(metric) for metric in self.metrics],
            "by_length": signed("length", self.by_length),
            "by_frequency": None if frequent is None else signed("frequency", frequent),
            "sentence_signatures": {by: self.signatures[by] for by in ("bleu", "chrf")},
            "moved": [
                {"system": system.name, **asdict(moved)}
                for system, moved in zip(self.systems[1:], self.movements, strict=True)
            ],
        }


def compare(
    text: ComparedText,
    systems: Sequence[System],
    config: ComparisonConfig,
    training: Iterable[str] | None = None,
) -> Comparison:
    """Compare every other system with the first; ``training`` is the target side of a text.

    Raises:
        InputError: Numbers of lines differ, there is one system alone, or no sentence.
    """
    hypotheses = [system.hypotheses for system in systems]
    metrics = [build_metric(name, config.scoring) for name in config.scores]
    tested = paired_tests(hypotheses, text.references, metrics, config.resampling)
    bleu = config.scoring.bleu()
    by_length = bleu_by_length(text.sources, hypotheses, text.references, bleu, config.lengths)
    frequencies = None
    if training is not None:
        words = words_by(bleu)
        counts = Counter(word for line in training for word in words(line))
        given, right = ([map(words, lines) for lines in hypotheses], map(words, text.references))
        frequencies = words_by_frequency(counts, given, list(right), config.frequencies)
    base, *rest = (SentenceScores(one, text.references, config.scoring) for one in hypotheses)
    settings: dict[str, Any] = {"by": config.moved_by, "limit": config.moved}
    movements = [movement(text.sources, text.references, base, other, **settings) for other in rest]
    signatures = {
        "length": str(bleu.get_signature()),
        "frequency": word_signature(bleu),
        **base.signatures,
    }
    return Comparison(text, systems, tested, signatures, by_length, frequencies, movements)
