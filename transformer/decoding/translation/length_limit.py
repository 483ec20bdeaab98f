"""Counts the translations that end only because of the length limit."""

import logging
from collections.abc import Iterable, Sequence

from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.search.interface import Hypothesis

logger = logging.getLogger(__name__)


class LengthLimit:
    """The limit of each translation: that of the search, or the positions of the model."""

    def __init__(self, search: SearchConfig, max_subwords: int) -> None:
        self.search, self.max_subwords = search, max_subwords
        self._reached = self._searched = 0

    def count(
        self, segments: Sequence[Segment], found: list[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Count the best hypotheses that reached the limit; return all hypotheses."""
        for segment, hypotheses in zip(segments, found, strict=True):
            limit = self.search.limit(len(segment.subwords)) + len(segment.given)
            limit = min(self.max_subwords, limit)
            self._reached += bool(hypotheses) and len(hypotheses[0].tokens) >= limit
        self._searched += len(segments)
        return found

    def pop_counts(self) -> tuple[int, int]:
        """Return and reset how many reached their limit, and how many there were."""
        counts = self._reached, self._searched
        self._reached = self._searched = 0
        return counts


def warn_about_length_limit(counts: Iterable[tuple[int, int]]) -> None:
    """Log one warning if any translation reached its limit (`LengthLimit.pop_counts`)."""
    reached, searched = map(sum, zip(*counts, strict=True))
    if reached:
        logger.warning(
            "%s of %s outputs reached the longest length and are cut there; see "
            "decoding.max_length_ratio and decoding.max_length_offset (at most model.max_length)",
            *(f"{reached:,}", f"{searched:,}"),
        )
