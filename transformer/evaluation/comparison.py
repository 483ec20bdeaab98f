"""Two or more systems on the same text: differences, their significance and location.

Source of the scores by source length and by training frequency: Neubig et al. 2019, "compare-mt: A
Tool for Holistic Comparison of Language Generation Systems", section 2.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric

from transformer.evaluation.metrics import build_metric, reference_streams, scored_lines
from transformer.evaluation.significance import TestedMetric, paired_tests
from transformer.settings.evaluation import ComparisonKeys
from transformer.settings.metrics import Better, MetricsConfig


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
    features: bool = False
    """Whether features follow a source, after a tab."""

    def word_count(self, source: str) -> int:
        """The words of a source, without its features."""
        text = source.partition("\t")[0] if self.features else source
        return len(text.split())


@dataclass(frozen=True)
class LengthBucket:
    """Sentences by the number of source words."""

    label: str
    sentences: int
    scores: tuple[float, ...] | None
    """Of each system; None for BLEU if no reference has as many words as the longest n-grams (4):
    even correct hypotheses would have 0."""


@dataclass(frozen=True)
class WordMatch:
    """Accuracy of one system on the words of a bucket; each from 0 to 100."""

    recall: float
    """Of the words of the references, in the hypothesis of their sentence."""
    precision: float
    """Of the words of the hypotheses, in the reference."""
    f1: float


@dataclass(frozen=True)
class FrequencyBucket:
    """Words by their frequency in training."""

    label: str
    words: int
    """Of the references, with repetitions."""
    matches: tuple[WordMatch, ...]


@dataclass(frozen=True)
class MovedSentence:
    """One sentence by two systems: the base, and the other one."""

    line: int
    source: str
    reference: str
    """Several are joined by bars."""
    hypotheses: tuple[str, str]
    scores: Mapping[str, tuple[float, float]]
    """Of this sentence by each metric; BLEU smoothed, of effective order."""

    def change(self, by: str) -> float:
        before, after = self.scores[by]
        return after - before

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        scores: dict[str, Any] = values.pop("scores")
        return values | scores


@dataclass(frozen=True)
class Movement:
    """A whole text by two systems."""

    by: str
    better: int
    worse: int
    same: int
    most_better: list[MovedSentence]
    """The largest gains, the largest first."""
    most_worse: list[MovedSentence]

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "most_better": [sentence.to_json() for sentence in self.most_better],
            "most_worse": [sentence.to_json() for sentence in self.most_worse],
        }


class SentenceScores:
    """Each hypothesis alone by each metric; see ``score``."""

    def __init__(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str | Sequence[str]],
        metrics: Sequence[str],
        config: MetricsConfig,
        sources: Sequence[str] | None = None,
    ) -> None:
        self.hypotheses = hypotheses
        self.scores: dict[str, list[float]] = {}
        self.signatures: dict[str, str] = {}
        for name in metrics:
            metric = build_metric(name, config, sentence_level=True)
            streams = reference_streams(metric, references, sources)
            statistics = metric._extract_corpus_statistics(hypotheses, streams)
            self.scores[name] = [metric._compute_score_from_stats(s).score for s in statistics]
            self.signatures[name] = str(metric.get_signature())


@dataclass(frozen=True)
class Comparison:
    """The results; the first of all sequences over systems is the base."""

    text: ComparedText
    systems: Sequence[System]
    metrics: Sequence[TestedMetric]
    signatures: Mapping[str, str]
    """Of ``length``, ``frequency``, and the metrics of sentences."""
    chosen: str
    by_length: Sequence[LengthBucket]
    by_frequency: Sequence[FrequencyBucket] | None
    movements: Sequence[Movement]
    base: SentenceScores
    """Each sentence of the base; without other systems only by the metric that ranks them."""
    lines: Sequence[int]
    """Indices of the sentences; the blank lines between documents are none."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; hypotheses only of the sentences in ``movements``."""
        lengths = {
            "signature": self.signatures["length"],
            "buckets": [
                {"label": bucket.label, "sentences": bucket.sentences, self.chosen: bucket.scores}
                for bucket in self.by_length
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
            "sentences": len(self.lines),
            "systems": [{"name": system.name, **system.about} for system in self.systems],
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
    sources = text.sources
    references = text.references
    names = keys.names(metrics)
    lines = scored_lines(sources, references, *hypotheses)
    scored = [[system[line] for line in lines] for system in hypotheses]
    scored_references = [references[line] for line in lines]
    scored_sources = [sources[line] for line in lines]
    tested = paired_tests(
        scored,
        scored_references,
        [build_metric(name, metrics) for name in names],
        keys,
        scored_sources,
    )
    chosen = build_metric(keys.chosen(metrics), metrics)
    by_length = scores_by_length(
        scored_sources, scored, scored_references, chosen, keys.lengths, text.word_count
    )
    by_frequency = None
    if training is not None:
        words = words_by(metrics.bleu())
        counts = Counter(word for line in training for word in words(line))
        # Of several references the first.
        reference_words = [words(first) for first, *_ in references]
        hypothesis_words = [map(words, lines) for lines in hypotheses]
        by_frequency = words_by_frequency(
            counts, hypothesis_words, reference_words, keys.frequencies
        )
    by = keys.ranks_by(metrics)
    sentence_metrics = list(dict.fromkeys([*names, by])) if len(systems) > 1 else [by]
    base, *compared = (
        SentenceScores(lines, references, sentence_metrics, metrics, sources)
        for lines in hypotheses
    )
    movements = [
        movement(text, base, system, lines, by=by, better=metrics.better(by), limit=keys.moved)
        for system in compared
    ]
    return Comparison(
        text=text,
        systems=systems,
        metrics=tested,
        signatures={
            "length": str(chosen.get_signature()),
            "frequency": word_signature(metrics.bleu()),
            **base.signatures,
        },
        chosen=keys.chosen(metrics),
        by_length=by_length,
        by_frequency=by_frequency,
        movements=movements,
        base=base,
        lines=lines,
    )


def bucket_labels(edges: Sequence[int]) -> list[str]:
    """Labels of the buckets; the first begins at 0, the last has no end."""
    edges = [0, *edges]
    bounded = [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in pairwise(edges)]
    return [*bounded, f"{edges[-1]}+"]


def scores_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    metric: Metric,
    edges: Sequence[int],
    word_count: Callable[[str], int],
) -> list[LengthBucket]:
    """Corpus score by source words; ``edges`` are the first lengths of later buckets."""
    indices: dict[int, list[int]] = {}
    for line, source in enumerate(sources):
        indices.setdefault(bisect_right(edges, word_count(source)), []).append(line)
    labels = bucket_labels(edges)
    buckets = []
    for bucket, lines in sorted(indices.items()):
        of_bucket = [references[line] for line in lines]
        streams = reference_streams(metric, of_bucket, [sources[line] for line in lines])
        scores = tuple(
            metric.corpus_score([texts[line] for line in lines], streams).score
            for texts in hypotheses
        )
        is_short = isinstance(metric, BLEU) and not _has_ngrams(of_bucket, metric)
        buckets.append(LengthBucket(labels[bucket], len(lines), None if is_short else scores))
    return buckets


def _has_ngrams(references: Sequence[Sequence[str]], bleu: BLEU) -> bool:
    """Whether any reference has as many words as the longest n-grams."""
    words = words_by(bleu)
    return any(
        len(words(reference)) >= bleu.max_ngram_order
        for of_line in references
        for reference in of_line
    )


def words_by(bleu: BLEU) -> Callable[[str], list[str]]:
    """The function that splits a line into the words that BLEU counts: tokenizer and case."""

    # The rules of 13a read neighboring characters only, so that words can be split one by one.
    by_word = bleu.tokenizer.signature() == "13a"

    def words(line: str) -> list[str]:
        cased = line.lower() if bleu.lowercase else line
        parts = cased.split() if by_word else [cased.rstrip()]
        return [word for part in parts for word in bleu.tokenizer(part).split()]

    return words


def word_signature(bleu: BLEU) -> str:
    """How words are split."""
    bleu.corpus_score([""], [[""]])  # before its first score it has no signature
    fields = dict(part.split(":") for part in str(bleu.get_signature()).split("|"))
    return "|".join(f"{key}:{fields[key]}" for key in ("case", "tok", "version"))


def words_by_frequency(
    counts: Mapping[str, int],
    hypotheses: Sequence[Iterable[Sequence[str]]],
    references: Sequence[Sequence[str]],
    edges: Sequence[int],
) -> list[FrequencyBucket]:
    """Accuracy on words by their training ``counts``; ``edges`` as in ``scores_by_length``."""

    def bucketed(words: Iterable[str]) -> Counter[int]:
        return Counter(bisect_right(edges, counts.get(word, 0)) for word in words)

    total = bucketed(word for words in references for word in words)
    systems = []
    for system in hypotheses:
        written = Counter[int]()
        matched = Counter[int]()
        for hypothesis, reference in zip(system, references, strict=True):
            written += bucketed(hypothesis)
            matched += bucketed((Counter(hypothesis) & Counter(reference)).elements())
        systems.append((matched, written))
    return [
        FrequencyBucket(
            label,
            total[bucket],
            tuple(
                _match(matched[bucket], total[bucket], written[bucket])
                for matched, written in systems
            ),
        )
        for bucket, label in enumerate(bucket_labels(edges))
        if total[bucket]
    ]


def _match(matched: int, total: int, written: int) -> WordMatch:
    """From the words that match, and all words of the references and of the hypotheses."""
    return WordMatch(
        recall=100 * matched / total,
        precision=100 * matched / written if written else 0.0,
        f1=200 * matched / (total + written),
    )


def movement(
    text: ComparedText,
    base: SentenceScores,
    system: SentenceScores,
    lines: Sequence[int],
    *,
    by: str,
    better: Better,
    limit: int,
) -> Movement:
    """Rank the sentences in these lines by the gain of a system over the base; at most ``limit``
    each way."""
    moved = []
    for line in lines:
        moved.append(
            MovedSentence(
                line=line + 1,
                source=text.sources[line],
                reference=" | ".join(text.references[line]),
                hypotheses=(base.hypotheses[line], system.hypotheses[line]),
                scores={
                    name: (before[line], system.scores[name][line])
                    for name, before in base.scores.items()
                },
            )
        )
    sign = 1 if better == "higher" else -1

    def loss(sentence: MovedSentence) -> float:
        return -sign * sentence.change(by)

    gains = sorted((sentence for sentence in moved if loss(sentence) < 0), key=loss)
    losses = sorted((sentence for sentence in moved if loss(sentence) > 0), key=loss, reverse=True)
    same = len(moved) - len(gains) - len(losses)
    return Movement(by, len(gains), len(losses), same, gains[:limit], losses[:limit])
