"""Counts the translations that end only because they may not become longer.

It does not know how they are found.
"""

import logging
from collections.abc import Iterable, Sequence

from transformer.decoding.config import SearchConfig
from transformer.decoding.search import Hypothesis
from transformer.decoding.segments import Segment

logger = logging.getLogger(__name__)

Counts = tuple[int, int]
"""Translations that reached their limit, and all."""


class LengthLimit:
    """The most pieces that each translation may have, and how many have so many."""

    def __init__(self, search: SearchConfig, most: int) -> None:
        """Count from nothing.

        Args:
            search: Says how the limit follows from the source.
            most: Pieces that the model has positions for.
        """
        self.search, self.most = search, most
        self._reached = self._searched = 0

    def counted(
        self, segments: Sequence[Segment], found: list[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """What was found, once the best hypothesis of each segment is looked at."""
        for segment, hypotheses in zip(segments, found, strict=True):
            limit = min(self.most, self.search.limit(len(segment.pieces)))
            self._searched += 1
            self._reached += bool(hypotheses) and len(hypotheses[0].tokens) >= limit
        return found

    def taken(self) -> Counts:
        """What was counted since the last call."""
        counts = self._reached, self._searched
        self._reached = self._searched = 0
        return counts


def warn_of_cuts(counts: Iterable[Counts]) -> None:
    """Say in one line how many of all translations reached their limit, if any did."""
    reached, searched = map(sum, zip(*counts, strict=True))
    if reached:
        logger.warning(
            "%s of %s translations reached the longest length and are cut there; see "
            "decoding.max_length_ratio and decoding.max_length_offset (at most model.max_length)",
            *(f"{reached:,}", f"{searched:,}"),
        )
