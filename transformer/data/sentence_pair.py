"""A sentence in two languages, with tags and word alignment.

It knows nothing of the grammar that made it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from transformer.data.linearisation import Token

_NO_SPACE_BEFORE = re.compile(r" (?=[.,?!]|'s\b)")


@dataclass(frozen=True)
class Sentence:
    """One side of a pair: words (punctuation apart) and their Universal POS tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentence as it is written."""
        return _NO_SPACE_BEFORE.sub("", " ".join(self.words))


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation; links are (English word, German word), 0-based."""

    english: Sentence
    german: Sentence
    alignment: tuple[tuple[int, int], ...]


def pair_of(english: Sequence[Token], german: Sequence[Token]) -> SentencePair:
    """The pair of two token lists; tokens that share a key are linked."""
    places: dict[tuple[int, str], list[int]] = {}
    for index, token in enumerate(german):
        for key in token.keys:
            places.setdefault(key, []).append(index)
    links = {
        (index, place)
        for index, token in enumerate(english)
        for key in token.keys
        for place in places.get(key, ())
    }
    return SentencePair(_sentence(english), _sentence(german), tuple(sorted(links)))


def _sentence(tokens: Sequence[Token]) -> Sentence:
    return Sentence(tuple(t.word for t in tokens), tuple(t.tag for t in tokens))
