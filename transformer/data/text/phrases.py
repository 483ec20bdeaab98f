"""Finds phrases at word boundaries (Unicode Standard Annex 29, section 4, reduced)."""

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from transformer.common.errors import InputError
from transformer.data.text.lines import read_lines
from transformer.data.tokenization.normalization import normalize

WORD, SPACE, OTHER = 0, 1, 2
"""Kinds of characters: of a word, space, and others such as punctuation."""

SENTENCE_ENDS = (".", "!", "?", "\u2026", "。", "！", "？")

# Scripts without spaces: every position may be a word boundary.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def is_unspaced(character: str) -> bool:
    """Whether a character is of a script without spaces between words."""
    return unicodedata.name(character, "").startswith(_UNSPACED)


def char_kind(character: str) -> int:
    """``WORD`` for letters, marks, digits and the underscore, except in scripts without spaces."""
    if character.isspace():
        return SPACE
    is_mark = unicodedata.category(character).startswith("M")
    if not (character.isalnum() or character == "_" or is_mark):
        return OTHER
    if is_unspaced(character):
        return OTHER
    return WORD


def one_line(text: str) -> str:
    """Return the text with composed characters, and one space for any white space."""
    return " ".join(normalize(text).split())


def occurs(phrase: str, text: str) -> bool:
    """Whether the text has the phrase, not empty, in the same case, between word boundaries."""
    return any(True for _ in occurrences(one_line(phrase), one_line(text)))


def without(phrase: str, text: str) -> str:
    """The text as one line, with U+FFFD in place of each occurrence of the phrase."""
    phrase = one_line(phrase)
    text = one_line(text)
    parts = []
    start = 0
    for index in occurrences(phrase, text):
        if index >= start:
            parts.append(text[start:index])
            start = index + len(phrase)
    return "\ufffd".join([*parts, text[start:]])


def occurrences(phrase: str, text: str) -> Iterator[int]:
    """The indices of a phrase between word boundaries; both are as `one_line` returns them."""
    index = text.find(phrase) if phrase else -1
    while index >= 0:
        if not (_joined(text, index) or _joined(text, index + len(phrase))):
            yield index
        index = text.find(phrase, index + 1)


def _joined(text: str, index: int) -> bool:
    """Whether the characters before and after this index belong to one word."""
    if not 0 < index < len(text):
        return False
    return char_kind(text[index - 1]) == WORD == char_kind(text[index])


def read_phrases(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the phrases of each line: separated by tabs, or a JSON list of strings."""
    for number, line in enumerate(read_lines(path), start=1):
        phrases: object = line.split("\t")
        if line.startswith("["):
            try:
                phrases = json.loads(line)
            except (ValueError, RecursionError):
                phrases = None
        if not isinstance(phrases, list) or not all(isinstance(phrase, str) for phrase in phrases):
            raise InputError(
                f'{path}:{number}: not a JSON list of strings; write ["…", "…"] or phrases with '
                "tabs between them"
            )
        yield tuple(phrase for phrase in phrases if one_line(phrase))
