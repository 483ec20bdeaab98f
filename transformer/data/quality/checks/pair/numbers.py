"""Numbers that both sides have, and that differ: 1998 against 1989.

Only where one number differs, and all others agree: numbers may be spelt out, left out, converted,
or part of an example. Does not know languages: grouping, decimal signs, order and leading zeros
count for nothing.
"""

import re
import unicodedata
from collections.abc import Mapping

from transformer.data.quality.base import Fault, PairCheck
from transformer.data.quality.pair import NumberedPair, quoted

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
# The word before a number, or what it goes on from; the letters and the sign that it is joined to.
_BEFORE, _JOINED = re.compile(r"(\w*)\W*$"), re.compile(r"[^\W\d]*[-+]?$")
_DIGITS = re.compile(r"\d+")
# A text with more of them is a table or a listing: nothing is compared.
_MOST = 50
# Numbers up to this are often words.
_SPELT_OUT = "012"
# Characters before a number that are looked at.
_BEFORE_IT = 40


class Numbers(PairCheck):
    """Pairs in which each side has one number that the other lacks, in the same place."""

    name = "numbers"

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Name both numbers."""
        texts = [_plain(pair.source), _plain(pair.target)]
        if not all(texts) or texts[0] == texts[1]:
            return None
        halves = any(map(_HOURS.search, texts))
        sources, targets = ([_numbers(one, text) for one in _READINGS] for text in texts)
        odd = [
            (_lacking(source, target, halves), _lacking(target, source, halves))
            for source in sources
            for target in targets
        ]
        # Under some reading all may be well.
        if [*map(len, odd[0])] != [1, 1] or not all(map(all, odd)):
            return None
        (source,), (target,) = odd[0]
        if not _in_one_place(source, target, sources[0][source], targets[0][target]):
            return None
        where = f"{quoted(pair.source)} and {quoted(pair.target)}"
        return Fault(None, f"{source} against {target}: {where}")


def _plain(text: str) -> str:
    """Return the text with ASCII digits; empty if it has none, or is one word: a value, a path.

    Also empty if it has too many.
    """
    if not any(map(str.isdigit, text)) or (text.isascii() and len(text.split()) < 2):
        return ""
    if len(_DIGITS.findall(text)) > _MOST:
        return ""
    return _DIRECTIVE.sub("", unicodedata.normalize("NFKC", text).lower())


def _numbers(reading: re.Pattern[str], text: str) -> dict[str, str]:
    """Return the numbers of a text, each with what stands before it."""
    found = {}
    for one in reading.finditer(text):
        number = "".join(filter(str.isdecimal, one[0]))
        # Minutes, decimals and groups of nothing are often left out.
        if number.strip("0") or number == "0":
            before = text[max(0, one.start() - _BEFORE_IT) : one.start()]
            found[number.lstrip("0") or "0"] = before
    return found


def _lacking(numbers: Mapping[str, str], others: Mapping[str, str], halves: bool) -> list[str]:
    """Return the numbers that are not among others."""
    return [
        number
        for number in numbers
        if number not in others and not any(_alike(number, other, halves) for other in others)
    ]


def _in_one_place(number: str, other: str, before: str, there: str) -> bool:
    """Whether the same word stands before both numbers, or both have as many digits, and several.

    Neither is joined to other letters or to another sign than the other.
    """
    if len({_JOINED.findall(text)[0] for text in (before, there)} - {""}) > 1:
        return False
    if len(number) == len(other) and min(number, other).zfill(len(_SPELT_OUT)) > _SPELT_OUT:
        return True
    word = _BEFORE.findall(before)[0]
    return word == _BEFORE.findall(there)[0] and (
        word.isalpha() or (word != "" and len(number) == len(other))
    )


def _alike(number: str, other: str, halves: bool) -> bool:
    """Whether both may mean the same: 5000 and 5 thousand, 1990 and the 90s, 3 pm and 15."""
    short, long = sorted((number, other), key=len)
    zeros = len(long) - len(short)
    if long == short + "0" * zeros and (zeros >= 3 or not zeros):
        return True
    if len(long) == 4 and long[0] in "12" and len(short) <= 2:
        century = long.endswith("00") and int(short) - int(long[:2]) in (0, 1)
        return int(long[2:]) == int(short) or century
    return halves and len(long) <= 2 and abs(int(number) - int(other)) == 12
