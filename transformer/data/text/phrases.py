"""Where a phrase occurs in a text: only between the edges of words.

``der`` occurs in "der Hund" and not in "wieder". It knows characters, and neither pieces nor what
the phrase is wanted for. What belongs to a word follows Unicode Standard Annex 29, section 4, cut
down to three kinds of characters.
"""

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from transformer.common.errors import InputError
from transformer.data.text.parallel import read_lines
from transformer.data.tokenization.normalization import normalize

WORD, SPACE, OTHER = 0, 1, 2
"""Kinds of characters: of a word, space, and all that stands by itself, such as punctuation."""

# Written without spaces: an edge of a word cannot be seen, so that any place may be one.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def char_kind(character: str) -> int:
    """``WORD`` for letters, marks, digits and the underscore, except in scripts without spaces."""
    if character.isspace():
        return SPACE
    word = character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"
    if not word or unicodedata.name(character, "").startswith(_UNSPACED):
        return OTHER
    return WORD


def one_line(text: str) -> str:
    """The text as phrases are looked for in it: composed characters, one space for any space."""
    return " ".join(normalize(text).split())


def occurs(phrase: str, text: str) -> bool:
    """Whether the text has the phrase, case and all, and no word goes on at either end of it.

    An empty phrase occurs nowhere.
    """
    phrase, text = one_line(phrase), one_line(text)
    index = text.find(phrase) if phrase else -1
    while index >= 0:
        end = index + len(phrase)
        if not (_joined(text, index) or _joined(text, end)):
            return True
        index = text.find(phrase, index + 1)
    return False


def _joined(text: str, index: int) -> bool:
    """Whether the characters before and after this place are of one word."""
    if not 0 < index < len(text):
        return False
    return char_kind(text[index - 1]) == WORD == char_kind(text[index])


def read_phrases(path: Path) -> Iterator[tuple[str, ...]]:
    """The phrases of each line of a file: tabs part them, or the line is a JSON list of strings.

    A blank line has none.

    Raises:
        InputError: A line is a broken list, or the file cannot be read.
    """
    for number, line in enumerate(read_lines(path), start=1):
        phrases: object = line.split("\t")
        if line.startswith("["):
            try:
                phrases = json.loads(line)
            except (ValueError, RecursionError):
                phrases = None
        if not isinstance(phrases, list) or not all(isinstance(one, str) for one in phrases):
            raise InputError(
                f'{path}:{number}: not a JSON list of strings; write ["…", "…"] or phrases with '
                "tabs between them"
            )
        yield tuple(phrase for phrase in phrases if one_line(phrase))
