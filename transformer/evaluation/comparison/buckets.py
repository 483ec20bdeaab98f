"""Scores by source length and by training frequency (Neubig et al. 2019, section 2)."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric

from transformer.evaluation.metrics import reference_streams


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
) -> list[LengthBucket]:
    """Corpus score by source words; ``edges`` are the first lengths of later buckets."""
    indices: dict[int, list[int]] = {}
    for line, source in enumerate(sources):
        indices.setdefault(bisect_right(edges, len(source.split())), []).append(line)
    labels, found = bucket_labels(edges), []
    for bucket, lines in sorted(indices.items()):
        right = [references[line] for line in lines]
        streams = reference_streams(metric, right, [sources[line] for line in lines])
        scores = tuple(
            metric.corpus_score([texts[line] for line in lines], streams).score
            for texts in hypotheses
        )
        short = isinstance(metric, BLEU) and not _has_ngrams(right, metric)
        found.append(LengthBucket(labels[bucket], len(lines), None if short else scores))
    return found


def _has_ngrams(references: Sequence[Sequence[str]], bleu: BLEU) -> bool:
    words, least = words_by(bleu), bleu.max_ngram_order
    return any(len(words(one)) >= least for several in references for one in several)


def words_by(bleu: BLEU) -> Callable[[str], list[str]]:
    """The function that splits a line into the words that BLEU counts: tokenizer and case."""

    # The rules of 13a see neighboring characters alone, so that words can be split one by one.
    apart = bleu.tokenizer.signature() == "13a"

    def words(line: str) -> list[str]:
        cased = line.lower() if bleu.lowercase else line
        parts = cased.split() if apart else [cased.rstrip()]
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
        given, matched = Counter[int](), Counter[int]()
        for hypothesis, reference in zip(system, references, strict=True):
            given += bucketed(hypothesis)
            matched += bucketed((Counter(hypothesis) & Counter(reference)).elements())
        systems.append((matched, given))
    return [
        FrequencyBucket(
            label,
            total[bucket],
            tuple(_match(right[bucket], total[bucket], given[bucket]) for right, given in systems),
        )
        for bucket, label in enumerate(bucket_labels(edges))
        if total[bucket]
    ]


def _match(matched: int, total: int, given: int) -> WordMatch:
    f1 = 200 * matched / (total + given)
    return WordMatch(100 * matched / total, 100 * matched / given if given else 0.0, f1)
