"""A numbered sentence pair, and helpers to compare and to quote texts."""

import re
import unicodedata
from typing import Literal, NamedTuple

from transformer.common.escaping import escaped

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

# ASCII is removed as bytes, for speed; the expression removes the rest of Unicode.
_ASCII_NO_WORD = bytes(code for code in range(128) if not chr(code).isalnum())
_NO_WORD = re.compile(r"[\W_]+")
# Variation selectors only choose how the character before them is drawn.
_VARIATIONS = frozenset(map(chr, range(0xFE00, 0xFE10)))
_QUOTED = 60


class NumberedPair(NamedTuple):
    """A sentence pair with its line number."""

    line: int
    """Line of its file or files, from 1."""
    source: str
    target: str
    source_tokens: int = 0
    """Tokens of the source, counted or estimated."""
    target_tokens: int = 0

    @property
    def texts(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target


def bare(text: str) -> str:
    """Return the letters, their marks, and the digits of a text, without case."""
    if text.isascii():
        return text.lower().encode().translate(None, _ASCII_NO_WORD).decode()
    folded = unicodedata.normalize("NFKC", text).casefold().encode()
    return _NO_WORD.sub(_marks, folded.translate(None, _ASCII_NO_WORD).decode())


def _marks(found: re.Match[str]) -> str:
    """Return the vowel signs and tone marks among characters that are no letters or digits."""
    return "".join(
        character
        for character in found[0]
        if unicodedata.category(character) in ("Mn", "Mc") and character not in _VARIATIONS
    )


def quoted(text: str, index: int = 0) -> str:
    """Return the part of a text around an index, for a report; invisible characters are escaped."""
    start = max(0, min(index - _QUOTED // 2, len(text) - _QUOTED))
    end = start + _QUOTED
    return f'"{"…" if start else ""}{escaped(text[start:end])}{"…" if end < len(text) else ""}"'
