"""Lengths of pairs: empty sides, sides that are too long, pairs out of proportion.

Does not know where a length comes from: a tokenizer, or an estimate.
"""

import math

from transformer.doctor.check import Fault, PairCheck
from transformer.doctor.pair import SIDES, NumberedPair, quoted

# Characters added to both sides, so that short texts are not out of proportion by a word.
_SLACK = 5


def log_ratio(source: str, target: str) -> float:
    """Return the logarithm of target characters for one of the source."""
    return math.log((len(target) + _SLACK) / (len(source) + _SLACK))


class EmptySides(PairCheck):
    """Pairs with a side of spaces alone, or nothing."""

    name = "empty"

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Name the empty side, and show the other."""
        texts = (pair.source, pair.target)
        empty = [not text or text.isspace() for text in texts]
        if all(empty):
            return Fault(None, "both sides are empty")
        for side, is_empty, other in zip(SIDES, empty, reversed(texts), strict=True):
            if is_empty:
                return Fault(side, f"against {quoted(other)}")
        return None


class Disproportion(PairCheck):
    """Pairs whose ratio of lengths is far from the usual one of the text."""

    name = "ratio"

    def __init__(self, split: str, most: int, usual: float, factor: float) -> None:
        """Begin to count; see `PairCheck`.

        Args:
            split: as there.
            most: as there.
            usual: logarithm of the usual ratio (`log_ratio`).
            factor: of the usual ratio, that is too much.
        """
        super().__init__(split, most)
        self._usual = usual
        self._bound = math.log(factor)

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Tell the lengths."""
        off = log_ratio(pair.source, pair.target) - self._usual
        if abs(off) <= self._bound or not pair.source.strip() or not pair.target.strip():
            return None
        said = f"{len(pair.source)} characters against {len(pair.target)}"
        return Fault(None, f"{said}: {quoted(pair.source)} and {quoted(pair.target)}")


class Overlong(PairCheck):
    """Pairs with a side of more tokens than ``data.max_length``: training leaves them out."""

    name = "too_long"

    def __init__(self, split: str, most: int, max_length: int) -> None:
        """Begin to count; see `PairCheck`."""
        super().__init__(split, most)
        self._max_length = max_length

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Tell the length."""
        texts, lengths = (pair.source, pair.target), (pair.source_tokens, pair.target_tokens)
        for side, text, length in zip(SIDES, texts, lengths, strict=True):
            if length > self._max_length:
                return Fault(side, f"{length} tokens: {quoted(text)}")
        return None
