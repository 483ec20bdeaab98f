"""Two or more systems on the same text: is another better than the first, how sure is that, where?

It knows raw text only: neither models nor files, nor how the result is shown.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sacrebleu.metrics import BLEU

from transformer.common.errors import InputError
from transformer.evaluation.comparison.buckets import (
    FrequencyBucket,
    LengthBucket,
    bleu_by_length,
    require_edges,
    word_signature,
    words_by,
    words_by_frequency,
)
from transformer.evaluation.comparison.sentence_deltas import By, Movement, SentenceScores, movement
from transformer.evaluation.comparison.significance import Resampling, TestedMetric, paired_tests
from transformer.evaluation.metrics import MetricsConfig, build_metric


@dataclass(frozen=True)
class ComparisonConfig:
    """What is measured; ``conf/compare.yaml`` has the values.

    Attributes:
        scores: Of bleu, chrf, ter.
        scoring: How; its tokenizer parts the words of known frequency too.
        resampling: Of the paired tests.
        lengths: The first number of source words of each bucket after the first.
        frequencies: The first frequency of each bucket after the first.
        moved: Sentences to show in each direction.
        moved_by: The metric that ranks them.
    """

    scores: Sequence[str]
    scoring: MetricsConfig
    resampling: Resampling
    lengths: Sequence[int]
    frequencies: Sequence[int]
    moved: int
    moved_by: By

    def __post_init__(self) -> None:
        """Refuse what cannot be measured.

        Raises:
            InputError: A value is unknown, twice there, or out of range.
        """
        if not self.scores or len(set(self.scores)) < len(self.scores):
            raise InputError(f"scores={list(self.scores)} must be one or more, each once")
        for name in self.scores:
            build_metric(name, self.scoring)
        require_edges(self.lengths, "lengths")
        require_edges(self.frequencies, "frequencies")
        if self.moved < 0:
            raise InputError(f"moved={self.moved} must be at least 0")


@dataclass(frozen=True)
class System:
    """What one system says.

    Attributes:
        name: As the user calls it.
        hypotheses: One a line.
        about: What made them, as plain values, where that is known.
    """

    name: str
    hypotheses: Sequence[str] = field(repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparedText:
    """What the systems translate.

    Attributes:
        name: As the user calls it.
        sources: One a line.
        references: One a line.
    """

    name: str
    sources: Sequence[str] = field(repr=False)
    references: Sequence[str] = field(repr=False)


@dataclass(frozen=True)
class Comparison:
    """What was found; of all sequences over systems the first is the base.

    Attributes:
        text: What was translated.
        systems: Who translated it.
        metrics: Scores and tests.
        signatures: Of the scores that are no tests: ``length``, ``frequency``, and by their metrics
            those of sentences, ``bleu`` and ``chrf``.
        by_length: BLEU of sentences of each length.
        by_frequency: How well words of each frequency are said; None: it is not known how often
            the training text has them.
        movements: Sentences of each system but the base.
    """

    text: ComparedText
    systems: Sequence[System]
    metrics: Sequence[TestedMetric]
    signatures: Mapping[str, str]
    by_length: Sequence[LengthBucket]
    by_frequency: Sequence[FrequencyBucket] | None
    movements: Sequence[Movement]

    def to_json(self) -> dict[str, Any]:
        """Plain values; hypotheses only of the sentences that moved."""
        frequencies = self.by_frequency
        return {
            "text": self.text.name,
            "sentences": len(self.text.sources),
            "systems": [{"name": one.name, **one.about} for one in self.systems],
            "metrics": [asdict(metric) for metric in self.metrics],
            "by_length": {
                "signature": self.signatures["length"],
                "buckets": [asdict(bucket) for bucket in self.by_length],
            },
            "by_frequency": None
            if frequencies is None
            else {
                "signature": self.signatures["frequency"],
                "buckets": [asdict(bucket) for bucket in frequencies],
            },
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
    """Compare every other system with the first.

    Args:
        text: What they translate.
        systems: Two or more.
        config: What is measured.
        training: The target side of the text that a system learnt from.

    Raises:
        InputError: Numbers of lines differ, there is one system alone, or no sentence.
    """
    hypotheses = [system.hypotheses for system in systems]
    metrics = [build_metric(name, config.scoring) for name in config.scores]
    tested = paired_tests(hypotheses, text.references, metrics, config.resampling)
    bleu = config.scoring.bleu()
    by_length = bleu_by_length(text.sources, hypotheses, text.references, bleu, config.lengths)
    frequencies = None if training is None else _by_frequency(text, systems, config, bleu, training)
    base, *others = (SentenceScores(said, text.references, config.scoring) for said in hypotheses)
    movements = [
        movement(text.sources, text.references, base, other, by=config.moved_by, most=config.moved)
        for other in others
    ]
    signatures = {
        "length": str(bleu.get_signature()),
        "frequency": word_signature(bleu),
        **base.signatures,
    }
    return Comparison(text, systems, tested, signatures, by_length, frequencies, movements)


def _by_frequency(
    text: ComparedText,
    systems: Sequence[System],
    config: ComparisonConfig,
    bleu: BLEU,
    training: Iterable[str],
) -> list[FrequencyBucket]:
    words = words_by(bleu)
    counts = Counter(word for line in training for word in words(line))
    said = [map(words, system.hypotheses) for system in systems]
    return words_by_frequency(counts, said, list(map(words, text.references)), config.frequencies)
