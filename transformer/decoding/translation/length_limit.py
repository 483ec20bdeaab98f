"""Counts the translations that end only because they may not become longer.

It does not know how they are found.
"""

import logging
from collections.abc import Iterable, Sequence

from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.search.interface import Hypothesis

logger = logging.getLogger(__name__)


class LengthLimit:
    """The most pieces of each translation: as the search says, and the model has positions for."""

    def __init__(self, search: SearchConfig, most: int) -> None:
        self.search, self.most = search, most
        self._reached = self._searched = 0

    def counted(
        self, segments: Sequence[Segment], found: list[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """What was found, once the best hypothesis of each segment is looked at."""
        for segment, hypotheses in zip(segments, found, strict=True):
            limit = min(self.most, self.search.limit(len(segment.subwords)))
            self._reached += bool(hypotheses) and len(hypotheses[0].tokens) >= limit
        self._searched += len(segments)
        return found

    def taken(self) -> tuple[int, int]:
        """How many have reached their limit, of how many, since the last call."""
        counts = self._reached, self._searched
        self._reached = self._searched = 0
        return counts


def warn_about_length_limit(counts: Iterable[tuple[int, int]]) -> None:
    """Say in one line how many translations reached their limit (`LengthLimit.taken`), if any."""
    reached, searched = map(sum, zip(*counts, strict=True))
    if reached:
        logger.warning(
            "%s of %s translations reached the longest length and are cut there; see "
            "decoding.max_length_ratio and decoding.max_length_offset (at most model.max_length)",
            *(f"{reached:,}", f"{searched:,}"),
        )
