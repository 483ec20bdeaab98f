"""A sentence in two languages, with tags and word alignment.

It knows nothing of the grammar that made it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.pocket.linearization import Token

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

    @property
    def written(self) -> tuple[int, ...]:
        """For each word, which of the words that spaces part in ``text`` holds it."""
        spaced = " ".join(self.words)
        removed = [match.start() for match in _NO_SPACE_BEFORE.finditer(spaced)]
        indices, start = [], 0
        for word in self.words:
            indices.append(spaced.count(" ", 0, start) - bisect_left(removed, start))
            start += len(word) + 1
        return tuple(indices)


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation; links are (English word, German word), 0-based."""

    english: Sentence
    german: Sentence
    alignment: tuple[tuple[int, int], ...]

    @property
    def links(self) -> frozenset[tuple[int, int]]:
        """The alignment between the words that spaces part in the two texts.

        A written word has the links of every word in it, its punctuation included.
        """
        english, german = self.english.written, self.german.written
        return frozenset((english[first], german[second]) for first, second in self.alignment)


def pair_of(english: Sequence[Token], german: Sequence[Token]) -> SentencePair:
    """The pair of two token lists; tokens that share a key are linked."""
    indices: dict[tuple[int, str], list[int]] = {}
    for index, token in enumerate(german):
        for key in token.keys:
            indices.setdefault(key, []).append(index)
    links = {
        (index, position)
        for index, token in enumerate(english)
        for key in token.keys
        for position in indices.get(key, ())
    }
    return SentencePair(_sentence(english), _sentence(german), tuple(sorted(links)))


def _sentence(tokens: Sequence[Token]) -> Sentence:
    return Sentence(tuple(t.word for t in tokens), tuple(t.tag for t in tokens))
