"""A test text in a report: intervals of its scores, quality by buckets, and its sentences.

It knows raw text only.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

from transformer.common.escaping import escaped
from transformer.evaluation.comparison.buckets import (
    scores_by_length,
    words_by,
    words_by_frequency,
)
from transformer.evaluation.comparison.sentence_deltas import SentenceScores
from transformer.evaluation.comparison.significance import Resampling, confidence_interval
from transformer.evaluation.metrics import METRICS, MetricsConfig, build_metric

LENGTHS, FREQUENCIES = (6, 11, 16, 21, 31, 51), (1, 2, 5, 10, 100, 1000)
"""First numbers of the buckets after the first, as ``compare`` has them."""

_BYTES, _MARKUP = 800_000, 450
"""Of all sentences of a page, whose limit is one megabyte; and of the markup of each."""

Values = dict[str, Any]


def intervals(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: MetricsConfig,
    resampling: Resampling,
) -> dict[str, Values]:
    """The 95 % interval of each metric that sacreBLEU can resample, by its name in results."""
    found = {}
    for name in config.tested:
        if name in ("custom", "comet"):
            continue
        tested = confidence_interval(
            hypotheses, references, build_metric(name, config), resampling, sources
        )
        [score] = tested.systems
        found[tested.name] = {
            "value": score.score,
            "low": score.mean - score.interval,
            "high": score.mean + score.interval,
            "interval_signature": tested.signatures["bootstrap"],
        }
    return found


def by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: MetricsConfig,
) -> Values:
    """The chosen metric by words of the source."""
    metric = build_metric(config.choose, config)
    found = scores_by_length(sources, [hypotheses], references, metric, LENGTHS)
    rows = [
        {"label": one.label, "count": one.sentences, "value": one.scores and one.scores[0]}
        for one in found
    ]
    return {"metric": METRICS[config.choose].label, "rows": rows}


def by_frequency(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    training: Iterable[str],
    config: MetricsConfig,
) -> list[Values]:
    """F1 of words by how often the target side of a training text has them."""
    words = words_by(config.bleu())
    counts = Counter(word for line in training for word in words(line))
    right = [words(first) for first, *_ in references]
    found = words_by_frequency(counts, [map(words, hypotheses)], right, FREQUENCIES)
    return [{"label": b.label, "count": b.words, "value": b.matches[0].f1} for b in found]


def sentences(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: MetricsConfig,
    flags: Mapping[str, Sequence[int]],
) -> Values:
    """Every sentence with its score, flags and word differences to its first reference.

    Of a text too large for a page, there are the half with the worst scores, and others spread
    evenly over the text. ``flags`` has line numbers from 0.
    """
    name = "chrf" if "chrf" in config.tested else config.choose
    scored = SentenceScores(hypotheses, references, [name], config, sources)
    scores, better = scored.scores[name], config.better(name)
    flagged: dict[int, list[str]] = {}
    for flag, lines in flags.items():
        for line in lines:
            flagged.setdefault(line, []).append(flag)
    order = sorted(range(len(sources)), key=scores.__getitem__, reverse=better == "lower")
    texts = "".join(("".join(sources), "".join(hypotheses), *map("".join, references)))
    size = len(texts.encode(errors="replace")) + _MARKUP * len(order)
    kept = _kept(order, min(len(order), len(order) * _BYTES // size))
    rows = [
        {
            "line": at + 1,
            "score": round(scores[at], 1),
            "flags": flagged.get(at, []),
            "source": escaped(sources[at]),
            "references": [escaped(text) for text in references[at][1:]],
            **differences(hypotheses[at], references[at][0]),
        }
        for at in kept
    ]
    about = {"metric": METRICS[name].label, "better": better, "signature": scored.signatures[name]}
    return {**about, "total": len(sources), "rows": rows}


def _kept(order: Sequence[int], limit: int) -> list[int]:
    """Lines to show, the worst first: the first half of the limit, and even steps of the rest."""
    if limit >= len(order):
        return list(order)
    first, rest = order[: limit // 2], sorted(order[limit // 2 :])
    step = len(rest) / max(limit - limit // 2, 1)
    even = {rest[int(number * step)] for number in range(limit - limit // 2)}
    return [*first, *(at for at in order[limit // 2 :] if at in even)]


def differences(hypothesis: str, reference: str) -> Values:
    """Both texts as parts, each with whether the other text lacks it; by words, or by characters."""
    left, right = _units(escaped(hypothesis)), _units(escaped(reference))
    matches = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    same_left = {match.a + n for match in matches for n in range(match.size)}
    same_right = {match.b + n for match in matches for n in range(match.size)}
    return {"hypothesis": _parts(left, same_left), "reference": _parts(right, same_right)}


def _units(text: str) -> list[str]:
    """Words with the blanks after them; characters where a text has no blanks."""
    return re.findall(r"\w+\s*|[^\w\s]+\s*|\s+", text) if " " in text else list(text)


def _parts(units: Sequence[str], same: set[int]) -> list[tuple[str, bool]]:
    runs = groupby(enumerate(units), key=lambda one: one[0] not in same)
    return [("".join(unit for _, unit in run), differs) for differs, run in runs]
