"""Terms of a glossary: the required phrase stands in place of the model's own word for it.

A required phrase alone is often added to the model's own word. So a sentence with a term is first
translated freely. The words that are linked to the term in both directions are the model's own
translation of it, and are forbidden in the second search, exactly as they were written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.text.phrases import (
    WORD,
    char_kind,
    is_unspaced,
    occurrences,
    occurs,
    one_line,
    read_phrases,
)
from transformer.data.text.word_alignment import NO_WORD, Links, subword_words
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import word_links
from transformer.decoding.constraints.request import Constraints, Term, terms_in


@dataclass(frozen=True)
class Glossary:
    """Phrases of the source language, and the phrases that must translate them."""

    entries: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> "Glossary":
        """Read lines of SOURCE and TARGET with a tab between; raises InputError."""
        entries: dict[str, str] = {}
        for number, phrases in enumerate(read_phrases(path), start=1):
            if len(phrases) != 2:
                raise InputError(f"{path}:{number}: write SOURCE<TAB>TARGET, one term a line")
            source, target = phrases
            if entries.setdefault(source, target) != target:
                raise InputError(
                    f"{path}:{number}: {source!r} is {entries[source]!r} above; give one target"
                )
        return cls(entries)

    def constraints(self, text: str, most: int | None = None) -> Constraints | None:
        """The terms that occur in a text, the first ``most`` in the order of the glossary."""
        terms = terms_in(text, self.entries.items())[:most]
        return Constraints(terms=terms) if terms else None


class LinkedWords(NamedTuple):
    """The words of a source and of its translation, without punctuation, and their links.

    In a script without spaces, each subword of the source is a word.
    """

    source: list[str]
    target: list[str]
    links: Links

    @classmethod
    def from_attention(
        cls,
        source: Sequence[int],
        target: Sequence[int],
        weights: Float[Tensor, "target source"],
        tokenizer: Tokenizer,
    ) -> "LinkedWords":
        """Link words that have their largest weight with each other, in both directions."""
        rows = _source_words(tokenizer.source_subwords(source))
        columns = subword_words(tokenizer.subwords(target))
        backward = word_links(weights.T, columns, rows, 1.0)
        links = word_links(weights, rows, columns, 1.0) & {(s, t) for t, s in backward}
        return cls(
            [_bare(text) for text in tokenizer.decode_source(_words(source, rows))],
            [_bare(text) for text in tokenizer.decode_target(_words(target, columns))],
            links,
        )

    def translations(self, phrase: str) -> Iterator[str]:
        """The words linked to each occurrence of a phrase, unless they occur elsewhere, too."""
        inside = self._words_of(one_line(phrase))
        linked = sorted({target for source, target in self.links if source in inside})
        # Consecutive words have one difference between number and rank.
        for _, run in groupby(enumerate(linked), lambda pair: pair[1] - pair[0]):
            words = [target for _, target in run]
            translation = " ".join(self.target[word] for word in words).strip()
            elsewhere = [*self.target[: words[0]], "", *self.target[words[-1] + 1 :]]
            if translation and not occurs(translation, " ".join(elsewhere)):
                yield translation

    def _words_of(self, phrase: str) -> set[int]:
        """The words of the source that belong to an occurrence of a phrase."""
        text = ""
        spans = []
        for word in map(one_line, self.source):
            if not any(map(is_unspaced, text[-1:] + word[:1])):
                text += " "
            spans.append((len(text), len(text) + len(word)))
            text += word
        inside = set()
        for first in occurrences(phrase, text):
            last = first + len(phrase)
            for number, (start, end) in enumerate(spans):
                outside = text[start:first] + text[last:end]
                # A part of a word stands for all of it, except in a script without spaces.
                if start < last and first < end and not any(map(is_unspaced, outside)):
                    inside.add(number)
        return inside

    def model_words(self, terms: Sequence[Term]) -> tuple[str, ...]:
        """The model's translations of terms, except those that overlap with a required phrase."""
        required = [target for _, target in terms]
        words = dict.fromkeys(word for source, _ in terms for word in self.translations(source))
        return tuple(
            word
            for word in words
            if not any(occurs(word, phrase) or occurs(phrase, word) for phrase in required)
        )


def _source_words(subwords: Sequence[str]) -> list[int]:
    """`subword_words`, but each subword of a script without spaces is a word."""
    numbers: list[int] = []
    number = NO_WORD
    before = (NO_WORD, "")
    for word, subword in zip(subword_words(subwords), subwords, strict=True):
        touching = before[1][-1:] + subword.lstrip(WORD_START)[:1]
        number += word not in (NO_WORD, before[0]) or any(map(is_unspaced, touching))
        numbers.append(NO_WORD if word == NO_WORD else number)
        before = (word, subword)
    return numbers


def _words(ids: Sequence[int], words: Sequence[int]) -> list[list[int]]:
    """The ids of each word, from the number of the word that each id is in."""
    of_words: list[list[int]] = [[] for _ in range(max(words, default=-1) + 1)]
    for token, word in zip(ids, words, strict=True):
        if word >= 0:
            of_words[word].append(token)
    return of_words


def _bare(text: str) -> str:
    """A text without the characters before its first and after its last letter or digit."""
    inside = [
        index
        for index, character in enumerate(text)
        if char_kind(character) == WORD or character.isalnum()
    ]
    return text[inside[0] : inside[-1] + 1] if inside else ""
