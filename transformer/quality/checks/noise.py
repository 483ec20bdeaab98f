"""Lines that are no sentence: letters typed over and over, bare numbers, the menu of a page."""

import re

from transformer.data.corpora.split import NumberedPair
from transformer.quality.check import SIDES, Fault, quoted

# "haha", "aaaa", "lalala": one to three letters, at least three times.
_BABBLE = re.compile(r"([^\W\d_]{1,3})\1{2,}[^\W\d_]{0,2}", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+")
_LETTERS = re.compile(r"[^\W\d_]")
# A laugh of fewer letters is a word.
_MIN_LETTERS = 10
# Words that a number of so many digits does not stand for.
_MIN_DIGITS = 5
_MIN_WORDS = 3
# What parts the entries of a menu; one may be a dash or a bullet of a language.
_SEPARATORS = re.compile(r"(?<=\s)[|»›•·](?=\s)")
_MIN_SEPARATORS = 2


def find_noise(pair: NumberedPair) -> Fault | None:
    """Name the side that is no sentence: babble, numbers against words, a menu against none."""
    for side, text, other in zip(SIDES, pair.texts, pair.texts[::-1], strict=True):
        if _is_babble(text) or _is_number_for_words(text, other) or _is_menu(text, other):
            return Fault(side, f"{quoted(text)} against {quoted(other)}")
    return None


def _is_babble(text: str) -> bool:
    words = _WORD.findall(text)
    return sum(map(len, words)) >= _MIN_LETTERS and all(map(_BABBLE.fullmatch, words))


def _is_number_for_words(text: str, other: str) -> bool:
    """Whether a text has digits and no letters, and the other letters and no digits."""
    return (
        sum(map(str.isdigit, text)) >= _MIN_DIGITS
        and not _LETTERS.search(text)
        and len(_WORD.findall(other)) >= _MIN_WORDS
        and not any(map(str.isdigit, other))
    )


def _is_menu(text: str, other: str) -> bool:
    return len(_SEPARATORS.findall(text)) >= _MIN_SEPARATORS and not _SEPARATORS.search(other)
