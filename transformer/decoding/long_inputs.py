"""Cut texts that are too long for the model into parts; count translations at their limit."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from transformer.data.text.phrases import SENTENCE_ENDS
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.search.interface import Hypothesis

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Segment:
    """Source subwords of a text, or of a part of it, with the constraints of its translation."""

    subwords: list[int]
    constraints: Constraints | None = None
    is_part: bool = False
    """Whether the text has more than one segment."""
    given: tuple[int, ...] = ()
    """The tags that its translation begins with (``Tags.given``)."""


def split_segments(
    subwords: list[int],
    constraints: Constraints | None,
    tokenizer: Tokenizer,
    max_length: int,
    given: Sequence[int] = (),
) -> list[Segment]:
    """Cut a text into parts of at most ``max_length`` subwords, and divide its constraints.

    Each part begins with the tags, its translation with the ``given`` tags. The first part has the
    prefix, every part has the forbidden phrases. The right part for a required phrase is unknown:
    no part gets it, so it may be unmet.
    """
    if len(subwords) <= max_length:
        return [Segment(subwords, constraints, given=tuple(given))] if subwords else []
    count = tokenizer.leading_tags(subwords)
    tags, text = subwords[:count], subwords[count:]
    segments: list[Segment] = []
    start, rest = 0, constraints and replace(constraints, must=())
    for length in segment_lengths(tokenizer.source_subwords(text), max(1, max_length - count)):
        part = [*tags, *text[start : start + length]]
        segments.append(Segment(part, rest, length < len(text), tuple(given)))
        start, rest = start + length, rest and replace(rest, prefix="")
    return segments


def segment_lengths(subwords: Sequence[str], max_length: int) -> list[int]:
    """Lengths of parts of at most ``max_length`` subwords, cut after sentences or before words."""
    lengths, start = [], 0
    while len(subwords) - start > max_length:
        full = range(start + max_length, start, -1)
        cuts = [cut for cut in full if subwords[cut].startswith(WORD_START)]
        ends = [cut for cut in cuts if subwords[cut - 1].endswith(SENTENCE_ENDS)]
        cut = (ends or cuts or [start + max_length])[0]
        lengths.append(cut - start)
        start = cut
    return [*lengths, len(subwords) - start]


def warn_about_segments(counts: Sequence[int], names: Sequence[str], max_length: int) -> None:
    """Log one warning about the texts that have several segments; ``names`` may be empty."""
    cut = [index for index, count in enumerate(counts) if count > 1]
    if cut:
        log.warning(
            "%s%s: longer than model.max_length=%s allows; decoded in %d segments",
            names[cut[0]] if names else "a text",
            f" and {len(cut) - 1} more" if cut[1:] else "",
            *(max_length, sum(counts[index] for index in cut)),
        )


class LengthLimit:
    """The maximum length of each translation: by the search, or by the model's positions."""

    def __init__(self, search: SearchConfig, max_subwords: int) -> None:
        self.search, self.max_subwords = search, max_subwords
        self._reached = self._searched = 0

    def count(
        self, segments: Sequence[Segment], found: list[list[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Count the best hypotheses that reached the limit; return all hypotheses."""
        for segment, hypotheses in zip(segments, found, strict=True):
            limit = self.search.limit(len(segment.subwords)) + len(segment.given)
            self._reached += len(hypotheses[0].tokens) >= min(self.max_subwords, limit)
        self._searched += len(segments)
        return found

    def is_reached(self, source: int, length: int) -> bool:
        """Whether an output of so many subwords was cut; a longer source has several parts."""
        parts = -(-source // self.max_subwords)
        return length >= min(max(1, parts) * self.max_subwords, self.search.limit(source))

    def pop_counts(self) -> tuple[int, int]:
        """Return and reset the number of translations at their limit, and of all translations."""
        counts = self._reached, self._searched
        self._reached = self._searched = 0
        return counts


def warn_about_length_limit(counts: Iterable[tuple[int, int]]) -> None:
    """Log one warning if any translation reached its limit (`LengthLimit.pop_counts`)."""
    reached, searched = map(sum, zip(*counts, strict=True))
    if reached:
        log.warning(
            "%s of %s outputs reached the maximum length and are cut; see "
            "decoding.max_length_ratio and decoding.max_length_offset (at most model.max_length)",
            *(f"{reached:,}", f"{searched:,}"),
        )
