"""Scores by source length (Neubig et al. 2019, section 2)."""

from bisect import bisect_right
from collections.abc import Sequence
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
    words = (bleu._preprocess_segment(one).split() for several in references for one in several)
    return any(len(line) >= bleu.max_ngram_order for line in words)
