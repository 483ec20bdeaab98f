"""A pair of a text under examination, and what is compared of it.

Does not know what is wrong with it.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from transformer.common.errors import InputError
from transformer.common.escaping import escaped
from transformer.data.corpora.resolve import Split
from transformer.data.text.parallel import SEPARATOR, Pair

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

# The common ones go at once, as bytes; what Unicode has beside them, by the expression.
_ASCII_NO_WORD = bytes(code for code in range(128) if not chr(code).isalnum())
_NO_WORD = re.compile(r"[\W_]+")
# Spell nothing: they choose how the character before them is drawn.
_VARIATIONS = frozenset(map(chr, range(0xFE00, 0xFE10)))
_QUOTED = 60


class NumberedPair(NamedTuple):
    """A sentence pair and where it stands."""

    line: int
    """Of its file or files, from 1."""
    source: str
    target: str
    source_tokens: int
    """Tokens of the source, counted or estimated."""
    target_tokens: int


def bare(text: str) -> str:
    """Return what makes it the same text: letters, their marks, and digits alone, without case."""
    if text.isascii():
        return text.lower().encode().translate(None, _ASCII_NO_WORD).decode()
    folded = unicodedata.normalize("NFKC", text).casefold().encode()
    return _NO_WORD.sub(_marks, folded.translate(None, _ASCII_NO_WORD).decode())


def _marks(found: re.Match[str]) -> str:
    """Return the vowel signs and tone marks among what is neither letter nor digit."""
    return "".join(
        character
        for character in found[0]
        if unicodedata.category(character) in ("Mn", "Mc") and character not in _VARIATIONS
    )


def quoted(text: str, index: int = 0) -> str:
    """Return a text for a report, cut around a place of it; what cannot be seen is escaped."""
    start = max(0, min(index - _QUOTED // 2, len(text) - _QUOTED))
    end = start + _QUOTED
    return f'"{"…" if start else ""}{escaped(text[start:end])}{"…" if end < len(text) else ""}"'


def numbered(split: Split) -> Iterator[tuple[int, Pair]]:
    """Yield (line, pair) of a split, in the order of its corpus, lines counted from 1.

    The blank pairs that part documents are none; some stand in no line.
    """
    line = 0
    for index, pair in enumerate(split.corpus):
        if pair is SEPARATOR:
            continue
        line += 1
        if (index in split.lines) is not split.inverted and (
            split.sentences == 1 or any(text.strip() for text in pair)
        ):
            yield line, pair


def check_not_empty(splits: Mapping[str, Split]) -> None:
    """Raise InputError for a split of which there is no line: nothing can be said of it."""
    for name, split in splits.items():
        if next(numbered(split), None) is None:
            files = ", ".join(map(str, split.corpus.paths))
            raise InputError(f"{files}: the {name} text has no line; give another data.{name}")


def line_location(split: Split, side: Side | None, line: int) -> str:
    """Say where a line stands: the file of a side, or the first where both are meant."""
    paths: Sequence[object] = split.corpus.paths
    return f"{paths[-1] if side == 'target' else paths[0]}:{line}"
