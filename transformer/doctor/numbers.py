"""Numbers that both sides have, and that differ: 1998 against 1989.

A number of one side alone is no fault: it may be spelt out or left out. Does not know languages:
grouping, decimal signs, order and leading zeros count for nothing.
"""

import re
import unicodedata
from collections.abc import Sequence

from transformer.doctor.check import Fault, PairCheck
from transformer.doctor.pair import NumberedPair, quoted

# Three readings: blanks part numbers, or group digits as in 1 000, or all marks are within one.
_READINGS = (
    *(
        re.compile(rf"(?<!\d)\d{{1,3}}(?:([{marks}])\d{{3}})(?:\1\d{{3}})*(?!\d)|\d+")
        for marks in (".,'’", " .,'’\u00a0\u2009\u202f\u22c5")
    ),
    re.compile(r"\d+(?:[.,'’]\d+)*"),
)
# The order or the width of a value in a message: %1$s, %8d.
_DIRECTIVE = re.compile(r"%[-+#0-9.]+")
# Of clocks with twelve hours or twenty-four.
_HOURS = re.compile(r"\d\s?(?:[ap]\.?\s?m\b|h\b|uhr\b|o.clock)|\d:\d\d", re.IGNORECASE)


class Numbers(PairCheck):
    """Pairs in which each side has a number that the other lacks."""

    name = "numbers"

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Name the first such number of either side."""
        texts = [_plain(pair.source), _plain(pair.target)]
        if not all(texts) or texts[0] == texts[1]:
            return None
        halves = any(map(_HOURS.search, texts))
        found = (
            _unmatched(_numbers(first, texts[0]), _numbers(other, texts[1]), halves)
            for first in _READINGS
            for other in _READINGS
        )
        plainest = next(found)
        # Under some reading all may be well.
        if plainest is None or None in found:
            return None
        source, target = plainest
        where = f"{quoted(pair.source)} and {quoted(pair.target)}"
        return Fault(None, f"{source} against {target}: {where}")


def _plain(text: str) -> str:
    """Return the text with ASCII digits; empty where it has no digit."""
    if not any(map(str.isdigit, text)):
        return ""
    return _DIRECTIVE.sub("", unicodedata.normalize("NFKC", text))


def _numbers(reading: re.Pattern[str], text: str) -> list[str]:
    found = ("".join(filter(str.isdecimal, one[0])) for one in reading.finditer(text))
    # Minutes, decimals and groups of nothing are often left out.
    return [number.lstrip("0") or "0" for number in found if number.strip("0") or number == "0"]


def _unmatched(
    source: Sequence[str], target: Sequence[str], halves: bool
) -> tuple[str, str] | None:
    """Return the first number of each side that the other lacks; None if a side has none.

    Of one that both have, one side lacks what it has less often.
    """
    first, other = (
        [
            one
            for place, one in enumerate(ours)
            if not any(_alike(one, their, halves) for their in theirs)
            or ours[:place].count(one) >= theirs.count(one) > 0
        ]
        for ours, theirs in ((source, target), (target, source))
    )
    return (first[0], other[0]) if first and other else None


def _alike(number: str, other: str, halves: bool) -> bool:
    """Whether both may mean the same: 5000 and 5 thousand, 1990 and the 90s, 3 pm and 15."""
    if number == other:
        return True
    short, long = sorted((number, other), key=len)
    zeros = len(long) - len(short)
    if long == short + "0" * zeros and zeros >= 3:
        return True
    if len(long) == 4 and long[0] in "12" and len(short) == 2:
        century = long.endswith("00") and int(short) - int(long[:2]) in (0, 1)
        return long[2:] == short or century
    return halves and abs(int(number) - int(other)) == 12 and len(long) <= 2
