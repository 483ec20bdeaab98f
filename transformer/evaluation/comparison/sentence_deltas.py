"""The sentences that one system says better than another, and those that it says worse.

It knows raw text only. A score of a single sentence says little; the sentences at the ends are for
reading.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from transformer.evaluation.metrics import MetricsConfig, build_metric

By = Literal["bleu", "chrf"]


@dataclass(frozen=True)
class MovedSentence:
    """One sentence by two systems.

    Attributes:
        line: Of the text, from 1.
        source: As it is read.
        reference: As it should be.
        hypotheses: Of the base, and of the other system.
        bleu: Sentence-level BLEU of both, smoothed, of the orders that there are.
        chrf: Sentence-level chrF of both.
    """

    line: int
    source: str
    reference: str
    hypotheses: tuple[str, str]
    bleu: tuple[float, float]
    chrf: tuple[float, float]

    def change(self, by: By) -> float:
        """By how much the other system is above the base."""
        before, after = self.bleu if by == "bleu" else self.chrf
        return after - before


@dataclass(frozen=True)
class Movement:
    """A whole text by two systems.

    Attributes:
        by: The metric that ranks.
        better: How many sentences the other system says better than the base.
        worse: How many worse.
        same: How many alike.
        most_better: The sentences that gained most, the largest gain first.
        most_worse: Those that lost most, the largest loss first.
    """

    by: By
    better: int
    worse: int
    same: int
    most_better: list[MovedSentence]
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
        self.bleu = [bleu.sentence_score(said, [right]).score for said, right in pairs]
        self.chrf = [chrf.sentence_score(said, [right]).score for said, right in pairs]
        self.signatures = {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}


def movement(
    sources: Sequence[str],
    references: Sequence[str],
    base: SentenceScores,
    other: SentenceScores,
    *,
    by: By,
    most: int,
) -> Movement:
    """Rank the sentences by how much better the other system says them; of equals the first first.

    Args:
        sources: One a line.
        references: One a line.
        base: What is compared against.
        other: What is compared.
        by: The metric that ranks.
        most: Sentences to show in each direction.
    """
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
    better = [sentence for sentence in moved if sentence.change(by) > 0]
    worse = [sentence for sentence in moved if sentence.change(by) < 0]
    return Movement(
        by,
        len(better),
        len(worse),
        len(moved) - len(better) - len(worse),
        sorted(better, key=lambda sentence: -sentence.change(by))[:most],
        sorted(worse, key=lambda sentence: sentence.change(by))[:most],
    )
