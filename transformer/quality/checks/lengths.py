"""Lengths of pairs: empty sides, sides that are too long or repeat themselves, other ratios."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transformer.data.corpora.split import NumberedPair
from transformer.data.text.parallel import Pair
from transformer.quality.check import SIDES, Fault, quoted

# Characters added to both sides, so that one word does not put a short text out of proportion.
_SLACK = 5
# Pairs that a fit needs.
_MIN_PAIRS = 200
# Groups of pairs of similar length in a fit.
_GROUPS = 20
_MIN_SPREAD = 0.1
# Standard deviations of a normal distribution in one median absolute deviation.
_DEVIATION = 1.4826
_TAIL = 0.95
_NEARLY_ALWAYS = 0.98
# Limits for a sentence: characters of the longer side, tails, logarithm of the ratio. The second
# ones hold if it has more sentences or the other side breaks off. Titles are translated freely.
_FAR = (100, 2.2, math.log(2))
_FAR_AND_MARKED = (60, 1.3, 0.5)
# A third of the length is too little for a shorter sentence, too.
_A_THIRD = (80, 2.2, math.log(3))
# A shorter side of fewer characters may abbreviate what the other explains: up to so many tails.
_FEW_CHARACTERS = 60
_MAX_TAILS_OF_FEW = 3.2
# A possible end of a sentence; and a certain one, if no small letter follows: no abbreviation.
_MARK = re.compile(r"[.!?…](?:[\"')\]»“”’]*\s|$)|[。！？]")
_END = re.compile(
    r"\w{3}[\"')\]»“”’]*[.!?…]+[\"')\]»“”’]*(?=\s+[\"'(«»„“]*([^\W\d_])|\s*$)|[。！？]"
)
_REPEATED_WORDS = 2
# More words than this are twice too many also in a short text, if it is so much longer.
_REPEATED_SENTENCE = 3
_FAR_AND_REPEATED = math.log(1.4)
# So many times in a row, a model repeats itself; so do songs, but not on one side.
_STUCK = 5
_MAX_PHRASE = 3
_WORD = re.compile(r"[^\W_]+")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
# Words of the other side of one that has only signs: one such as "&" has a translation.
_MIN_WORDS_FOR_SIGNS = 3
# A letter, a digit, or an arrow, a symbol or an emoji, which may be all that a label has.
_CONTENT = re.compile(r"[^\W_]|[\u2190-\U0010ffff]")
# Shorter texts may spell out an abbreviation; for sentences a lower limit is enough.
_MANY = 100
_MANY_OF_A_SENTENCE = 40


@dataclass(frozen=True)
class UsualLengths:
    """The ratio of lengths in a text, and how much pairs deviate from it."""

    log_ratio: float = 0.0
    """Logarithm of the median ratio of characters, target for source."""
    spread: tuple[float, float] = (0.06, 0.75)
    """Standard deviation of the logarithm: a constant, and a part that falls with the root of the
    length (Gale and Church 1993). The defaults lie between those of Multi30k and Debian's texts."""
    tail: float = 2.2
    """Standard deviations that 95 % of the pairs stay within."""
    closed: tuple[bool, bool] = (False, False)
    """Whether the source, and the target, nearly always ends in a mark if the other side does."""

    @classmethod
    def fit(cls, pairs: Sequence[Pair]) -> "UsualLengths":
        """Fit to pairs without empty sides; few pairs determine only the ratio."""
        if not pairs:
            return cls()
        lengths = np.array([[len(text) + _SLACK for text in pair] for pair in pairs])
        ratios = np.log(lengths[:, 1] / lengths[:, 0])
        log_ratio = float(np.median(ratios))
        if len(pairs) < _MIN_PAIRS:
            return cls(log_ratio)
        roots = np.prod(lengths.astype(float), axis=1) ** -0.25
        groups = np.array_split(np.argsort(roots), _GROUPS)
        deviations = np.abs(ratios - log_ratio)
        spreads = [_DEVIATION * np.median(deviations[group]) for group in groups]
        middles = np.array([np.median(roots[group]) for group in groups])
        slope = 0.0
        constant = float(np.mean(spreads))
        if np.ptp(middles) > 1e-6:  # else all are of one length
            slope, constant = np.polyfit(middles, spreads, 1)
        tails = deviations / np.maximum(constant + slope * roots, _MIN_SPREAD)
        tail = float(np.clip(np.quantile(tails, _TAIL), 1.8, 3.0))
        ends = np.array([[_is_closed(text) for text in pair] for pair in pairs])
        both = ends.all(axis=1).sum()
        # A mean of no pairs is 0.
        source, target = both / np.maximum(1, ends.sum(axis=0)[::-1]) >= _NEARLY_ALWAYS
        return cls(log_ratio, (float(constant), float(slope)), tail, (bool(source), bool(target)))

    def deviation(self, source: int, target: int) -> tuple[float, float]:
        """Return how far two lengths are from the usual ratio: as a logarithm, and in tails."""
        source, target = source + _SLACK, target + _SLACK
        log_deviation = math.log(target / source) - self.log_ratio
        constant, slope = self.spread
        spread = max(constant + slope * (source * target) ** -0.25, _MIN_SPREAD)
        return log_deviation, log_deviation / spread / self.tail


def find_empty_side(pair: NumberedPair) -> Fault | None:
    """Name the side that is empty or has only signs where the other is a text, or both."""
    empty = [not text or text.isspace() for text in pair.texts]
    if all(empty):
        return Fault(None, "both sides are empty")
    if any(empty):
        index = empty.index(True)
        return Fault(SIDES[index], f"against {quoted(pair.texts[1 - index])}")
    if not any(map(_CONTENT.search, pair.texts)):
        return Fault(None, f"both sides have only signs: {' and '.join(map(quoted, pair.texts))}")
    for side, text, other in zip(SIDES, pair.texts, pair.texts[::-1], strict=True):
        if not _LETTER_OR_DIGIT.search(text) and len(_WORD.findall(other)) >= _MIN_WORDS_FOR_SIGNS:
            return Fault(side, f"{quoted(text)} against {quoted(other)}")
    return None


def find_overlong(max_length: int, pair: NumberedPair) -> Fault | None:
    """Return the length of a side of more tokens than ``data.max_length``."""
    lengths = pair.source_tokens, pair.target_tokens
    for side, text, length in zip(SIDES, pair.texts, lengths, strict=True):
        if length > max_length:
            return Fault(side, f"{length} tokens: {quoted(text)}")
    return None


def find_disproportion(usual: UsualLengths, factor: float, pair: NumberedPair) -> Fault | None:
    """Return both lengths if one side says much more than the other, or everything twice."""
    texts = pair.source.strip(), pair.target.strip()
    if not all(texts):
        return None
    signed, tails = usual.deviation(*map(len, texts))
    shorter, longer = texts if signed > 0 else texts[::-1]
    is_out = _is_repetitive(abs(signed), shorter, longer)
    is_beyond = abs(signed) > math.log(factor)
    if not is_out and (is_beyond or abs(tails) > 1):
        min_length = _MANY_OF_A_SENTENCE if _sentences(longer) else _MANY
        broken = usual.closed[signed < 0] and _is_closed(longer) and not _is_closed(shorter)
        says_more = _says_more(abs(signed), abs(tails), shorter, longer, broken)
        is_out = says_more or (is_beyond and len(longer) >= min_length)
    if not is_out:
        return None
    lengths = f"{len(texts[0])} characters against {len(texts[1])}"
    return Fault(None, f"{lengths}: {quoted(texts[0])} and {quoted(texts[1])}")


def _is_repetitive(log_deviation: float, shorter: str, longer: str) -> bool:
    """Whether one text repeats a sentence, or a phrase over and over, and the other does not."""
    words = longer.split()
    # Most texts repeat so little that the exact count can be skipped.
    if len(words) - len(set(words)) < min(_REPEATED_SENTENCE, _STUCK - 1):
        return False
    if log_deviation > _FAR_AND_REPEATED and _is_twice(longer, _REPEATED_SENTENCE):
        return not _is_twice(shorter)
    return longest_run(longer) >= _STUCK and longest_run(shorter) == 1


def longest_run(text: str) -> int:
    """Return how many times in a row a phrase of up to three words occurs."""
    words = _WORD.findall(text.lower())
    longest = 1
    for length in range(1, _MAX_PHRASE + 1):
        equal = 0
        for word, earlier in zip(words[length:], words, strict=False):
            equal = equal + 1 if word == earlier else 0
            longest = max(longest, 1 + equal // length)
    return longest


def _says_more(log_deviation: float, tails: float, shorter: str, longer: str, broken: bool) -> bool:
    """Whether the longer text says more than the shorter one, not only in other words."""
    if tails > 1 and _is_twice(longer) and not _is_twice(shorter):
        return True
    is_far, is_a_third, may_be_far = (
        len(longer) >= characters and tails > max_tails and log_deviation > log_ratio
        for characters, max_tails, log_ratio in (_FAR, _A_THIRD, _FAR_AND_MARKED)
    )
    is_far |= is_a_third
    sentences = _sentences(longer)
    if not sentences or not may_be_far:
        return False
    explained = longer.count("(") > shorter.count("(")
    abbreviated = len(shorter) < _FEW_CHARACTERS and tails <= _MAX_TAILS_OF_FEW
    more = sentences > max(1, len(_MARK.findall(shorter)))
    return more or broken or (is_far and not explained and not abbreviated)


def _sentences(text: str) -> int:
    """Count the certain ends of sentences."""
    return sum(not next_letter.islower() for next_letter in _END.findall(text))


def _is_closed(text: str) -> bool:
    return not text.rstrip()[-1:].isalnum()


def _is_twice(text: str, min_words: int = _REPEATED_WORDS) -> bool:
    """Whether the second half of the words repeats the first half."""
    words = re.findall(r"\w+", text.lower())
    half = len(words) // 2
    return half >= min_words and len(words) == 2 * half and words[:half] == words[half:]
