"""Lengths of pairs: empty sides, sides that are too long, pairs out of proportion.

Does not know where a length comes from: a tokenizer, or an estimate.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transformer.data.quality.base import Fault, PairCheck
from transformer.data.quality.pair import SIDES, NumberedPair, quoted
from transformer.data.text.parallel import Pair

# Characters added to both sides, so that short texts are not out of proportion by a word.
_SLACK = 5
# Pairs that a spread is fitted to, in so many groups of about one length.
_ENOUGH, _GROUPS = 200, 20
_LEAST_SPREAD = 0.1
# Of a normal distribution: standard deviations for one median absolute deviation.
_DEVIATION = 1.4826
_TAIL = 0.95
_NEARLY_ALWAYS = 0.98
# Characters of the longer side, tails and logarithm of the ratio that are too much of a sentence:
# alone, and if it has more sentences or the other breaks off. Titles are often translated freely.
_FAR, _FAR_AND_MARKED = (100, 2.2, math.log(2)), (60, 1.3, 0.5)
# Tails that are too much, if the shorter side has few characters: what it abbreviates is explained.
_FEW_CHARACTERS, _FAR_FOR_FEW = 60, 3.2
# What may end a sentence, and what does unless the letter after it is a small one: no abbreviation.
_MARK = re.compile(r"[.!?…](?:[\"')\]»“”’]*\s|$)|[。！？]")
_END = re.compile(
    r"\w{3}[\"')\]»“”’]*[.!?…]+[\"')\]»“”’]*(?=\s+[\"'(«»„“]*([^\W\d_])|\s*$)|[。！？]"
)
_REPEATED_WORDS = 2
# Fewer spell an abbreviation out; so many of a sentence do not.
_MANY, _MANY_OF_A_SENTENCE = 100, 40


@dataclass(frozen=True)
class UsualLengths:
    """How long a target is for its source in a text, and how far pairs are from that."""

    log_ratio: float = 0.0
    """Logarithm of the median ratio of characters, target for source."""
    spread: tuple[float, float] = (0.06, 0.75)
    """Standard deviation of that: a constant, and a part that falls with the root of the length
    (Gale and Church 1993). The defaults lie between those of Multi30k and Debian's texts."""
    tail: float = 2.2
    """Standard deviations that 95 % of the pairs stay within."""
    closed: tuple[bool, bool] = (False, False)
    """Whether the source, and the target, nearly always ends in a mark if the other side does."""

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> "UsualLengths":
        """Fit it to pairs without empty sides; of few pairs only the ratio is."""
        if not pairs:
            return cls()
        lengths = np.array([[len(text) + _SLACK for text in pair] for pair in pairs])
        ratios = np.log(lengths[:, 1] / lengths[:, 0])
        usual = cls(float(np.median(ratios)))
        if len(pairs) < _ENOUGH:
            return usual
        roots = np.prod(lengths.astype(float), axis=1) ** -0.25
        groups = np.array_split(np.argsort(roots), _GROUPS)
        far = np.abs(ratios - usual.log_ratio)
        spreads = [_DEVIATION * np.median(far[group]) for group in groups]
        middles = np.array([np.median(roots[group]) for group in groups])
        slope, constant = 0.0, float(np.mean(spreads))
        if np.ptp(middles) > 1e-6:  # else all are of one length
            slope, constant = np.polyfit(middles, spreads, 1)
        deviations = far / np.maximum(constant + slope * roots, _LEAST_SPREAD)
        tail = float(np.clip(np.quantile(deviations, _TAIL), 1.8, 3.0))
        closed = np.array([[_is_closed(text) for text in pair] for pair in pairs])
        also = (closed[closed[:, 1 - side], side] for side in (0, 1))
        source, target = (bool(those.size and those.mean() >= _NEARLY_ALWAYS) for those in also)
        return cls(usual.log_ratio, (float(constant), float(slope)), tail, (source, target))

    def off(self, source: int, target: int) -> tuple[float, float]:
        """Return how far lengths are from the usual: as a logarithm, and in tails."""
        source, target = source + _SLACK, target + _SLACK
        far = math.log(target / source) - self.log_ratio
        constant, slope = self.spread
        spread = max(constant + slope * (source * target) ** -0.25, _LEAST_SPREAD)
        return far, far / spread / self.tail


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
    """Pairs of which one side says much more than the other, or all of it twice."""

    name = "ratio"

    def __init__(self, split: str, most: int, usual: UsualLengths, factor: float) -> None:
        """Begin to count; see `PairCheck`.

        Args:
            split: as there.
            most: as there.
            usual: lengths of the text.
            factor: of the usual ratio, that is too much for any pair.
        """
        super().__init__(split, most)
        self._usual = usual
        self._bound = math.log(factor)

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Tell the lengths."""
        texts = pair.source.strip(), pair.target.strip()
        if not all(texts):
            return None
        far, tails = self._usual.off(*map(len, texts))
        if abs(far) <= self._bound and abs(tails) <= 1:
            return None
        shorter, longer = texts if far > 0 else texts[::-1]
        many = len(longer) >= (_MANY_OF_A_SENTENCE if _sentences(longer) else _MANY)
        broken = self._usual.closed[far < 0] and _is_closed(longer) and not _is_closed(shorter)
        wrong = _is_far(abs(far), abs(tails), shorter, longer, broken)
        if wrong or (many and abs(far) > self._bound):
            said = f"{len(texts[0])} characters against {len(texts[1])}"
            return Fault(None, f"{said}: {quoted(texts[0])} and {quoted(texts[1])}")
        return None


def _is_far(far: float, tails: float, shorter: str, longer: str, broken: bool) -> bool:
    """Whether the longer text says more than the shorter one, and is not only put otherwise."""
    if tails > 1 and _is_twice(longer) and not _is_twice(shorter):
        return True
    is_far, may_be_far = (
        len(longer) >= characters and tails > most and far > ratio
        for characters, most, ratio in (_FAR, _FAR_AND_MARKED)
    )
    sentences = _sentences(longer)
    if not sentences or not may_be_far:
        return False
    explained = longer.count("(") > shorter.count("(")
    few = len(shorter) < _FEW_CHARACTERS and tails <= _FAR_FOR_FEW
    more = sentences > max(1, len(_MARK.findall(shorter)))
    return more or broken or (is_far and not explained and not few)


def _sentences(text: str) -> int:
    """Count what surely is the end of a sentence."""
    return sum(not next_letter.islower() for next_letter in _END.findall(text))


def _is_closed(text: str) -> bool:
    return not text.rstrip()[-1:].isalnum()


def _is_twice(text: str) -> bool:
    """Whether the second half of the words is the first half once more."""
    words = re.findall(r"\w+", text.lower())
    half = len(words) // 2
    return half >= _REPEATED_WORDS and len(words) == 2 * half and words[:half] == words[half:]


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
