"""Alignment error rate of word links, against a gold standard (Och and Ney 2003, section 5)."""

from collections.abc import Iterable
from dataclasses import dataclass

from transformer.data.text.word_alignment import Links
from transformer.evaluation.metrics import Score


@dataclass(frozen=True)
class AlignmentCounts:
    """Numbers of links: proposed (A), sure (S), proposed sure ones, proposed possible (P) ones."""

    proposed: int
    sure: int
    proposed_sure: int
    proposed_possible: int

    @property
    def error_rate(self) -> float:
        """``1 - (|A∩S| + |A∩P|) / (|A| + |S|)``; 1 - F where all links are sure."""
        return 1 - _ratio(self.proposed_sure + self.proposed_possible, self.proposed + self.sure)

    @property
    def precision(self) -> float:
        """``|A∩P| / |A|``: how many of the proposed links may be right."""
        return _ratio(self.proposed_possible, self.proposed)

    @property
    def recall(self) -> float:
        """``|A∩S| / |S|``: how many of the sure links were found."""
        return _ratio(self.proposed_sure, self.sure)

    def scores(self, signature: str) -> list[Score]:
        values = {
            "AER": self.error_rate,
            "alignment precision": self.precision,
            "alignment recall": self.recall,
        }
        return [Score.of(name, value, signature, decimals=4) for name, value in values.items()]


def count_links(pairs: Iterable[tuple[Links, Links, Links]]) -> AlignmentCounts:
    """Count (proposed, sure, possible) links of sentence pairs; a sure link is possible, too."""
    totals = [0, 0, 0, 0]
    for proposed, sure, possible in pairs:
        counts = (proposed, sure, proposed & sure, proposed & (possible | sure))
        totals = [total + len(links) for total, links in zip(totals, counts, strict=True)]
    return AlignmentCounts(*totals)


def _ratio(part: int, whole: int) -> float:
    # No links proposed and none in the gold standard: no error.
    return part / whole if whole else 1.0
