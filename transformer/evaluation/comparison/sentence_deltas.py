"""The sentences that one system translates better or worse than another.

It knows raw text only. The score of a single sentence means little; the extremes are for reading.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from transformer.evaluation.metrics import MetricsConfig, build_metric

By = Literal["bleu", "chrf"]


@dataclass(frozen=True)
class MovedSentence:
    """One sentence by two systems: the base, and the other one."""

    line: int
    """Of the text, from 1."""
    source: str
    reference: str
    hypotheses: tuple[str, str]
    bleu: tuple[float, float]
    """Of the sentence, smoothed, of effective order."""
    chrf: tuple[float, float]

    def change(self, by: By) -> float:
        """The score of the other system minus that of the base."""
        before, after = self.bleu if by == "bleu" else self.chrf
        return after - before


@dataclass(frozen=True)
class Movement:
    """A whole text by two systems."""

    by: By
    """The metric that ranks."""
    better: int
    """Number of sentences with a better score than the base."""
    worse: int
    same: int
    most_better: list[MovedSentence]
    """The largest gains, the largest first."""
    most_worse: list[MovedSentence]


class SentenceScores:
    """BLEU and chrF of each hypothesis alone."""

    def __init__(
        self, hypotheses: Sequence[str], references: Sequence[str], config: MetricsConfig
    ) -> None:
        """Score each line."""
        bleu = config.bleu(effective_order=True)
        chrf = build_metric("chrf", config)
        pairs = list(zip(hypotheses, references, strict=True))
        self.hypotheses = hypotheses
        self.bleu = [bleu.sentence_score(text, [right]).score for text, right in pairs]
        self.chrf = [chrf.sentence_score(text, [right]).score for text, right in pairs]
        self.signatures = {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}


def movement(
    sources: Sequence[str],
    references: Sequence[str],
    base: SentenceScores,
    other: SentenceScores,
    *,
    by: By,
    limit: int,
) -> Movement:
    """Rank the sentences by their gain, up to ``limit`` in each direction; ties stay in order."""
    moved = [
        MovedSentence(
            line + 1,
            source,
            references[line],
            (base.hypotheses[line], other.hypotheses[line]),
            (base.bleu[line], other.bleu[line]),
            (base.chrf[line], other.chrf[line]),
        )
        for line, source in enumerate(sources)
    ]
    worse = [sentence for sentence in moved if sentence.change(by) < 0]
    better = [sentence for sentence in moved if sentence.change(by) > 0]
    worse.sort(key=lambda sentence: sentence.change(by))
    better.sort(key=lambda sentence: -sentence.change(by))
    same = len(moved) - len(better) - len(worse)
    return Movement(by, len(better), len(worse), same, better[:limit], worse[:limit])
