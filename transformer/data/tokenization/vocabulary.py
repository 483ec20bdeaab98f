"""One vocabulary: texts to tokens and back, with the tags after the tokens."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from transformer.data.tokenization.config import EOS
from transformer.data.tokenization.tags import SENTENCE_END, Tags, is_tag


class Vocabulary(ABC):
    """Splits texts into tokens, and joins them.

    If the vocabulary has a separator, a text may be several sentences of a document with
    SENTENCE_END between them: each is split by itself, with the separator between them.
    """

    first_tag: int
    """Id of the first tag: the number of tokens."""
    control: frozenset[int]
    tags: Tags
    never_written: tuple[int, ...] = ()
    """Ids of tokens that no target has."""

    def __len__(self) -> int:
        return self.first_tag + len(self.tags.spelt)

    @abstractmethod
    def split(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the token ids of sentences; a blank sentence has none."""

    @abstractmethod
    def join(self, sentences: list[list[int]]) -> list[str]:
        """Return the sentences of token ids, without tags and control symbols."""

    @abstractmethod
    def spell(self, token: int) -> str:
        """Return a token as spelt in the vocabulary."""

    def draw(self, sentences: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Sample a segmentation of each sentence: a function of sentence and seed."""
        return self.split(sentences)

    @property
    def separator(self) -> int | None:
        """Id of the separator between sentences, if there is one."""
        return self.first_tag if self.tags.sentences else None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts; a blank text has none."""
        return self._by_sentence(texts, lambda sentences, _: self.split(sentences))

    def sample(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Sample a segmentation of each text: a function of text and seed."""
        # Equal sentences of a document have the same segmentation.
        return self._by_sentence(
            texts,
            lambda sentences, owners: self.draw(sentences, [seeds[owner] for owner in owners]),
        )

    def decode(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """Join tokens into texts; a separator is a space, other tags and controls nothing."""
        texts: list[str] = []
        for row in rows:
            parts = [part for part in self.sentences(row) if part] or [[]]
            texts.append(" ".join(self.join(parts)))
        return texts

    def sentences(self, row: Sequence[int]) -> list[list[int]]:
        """Return the tokens of each sentence, without separators, tags and control symbols."""
        parts: list[list[int]] = [[]]
        for token in row:
            if token in self.control:
                continue
            if token < self.first_tag:
                parts[-1].append(int(token))
            elif token == self.separator:
                parts.append([])
        return parts

    def spelt(self, ids: Iterable[int]) -> list[str]:
        """Return tokens as spelt in the vocabulary, control symbols and tags too."""
        return [
            self.spell(int(token))
            if token < self.first_tag
            else self.tags.spelt[int(token) - self.first_tag]
            for token in ids
        ]

    def grown_from(self, before: "Vocabulary") -> list[list[int]]:
        """Return for each id those of a smaller vocabulary that mean the same.

        For an added word these are the subwords that it was cut into; for a new tag all former
        tags, or all subwords if there are none.
        """
        known = {symbol: [index] for index, symbol in enumerate(before.spelt(range(len(before))))}
        tags = range(before.first_tag, len(before)) or range(EOS + 1, before.first_tag)
        return [
            known.get(symbol) or (list(tags) if is_tag(symbol) else before.encode([symbol])[0])
            for symbol in self.spelt(range(len(self)))
        ]

    def _by_sentence(
        self, texts: Sequence[str], cut: Callable[[Sequence[str], Sequence[int]], list[list[int]]]
    ) -> list[list[int]]:
        """Split the sentences, given with the indices of their texts, and join those of a text."""
        if self.separator is None:
            return cut(texts, range(len(texts)))
        parts = [text.split(SENTENCE_END) for text in texts]
        owners = [owner for owner, part in enumerate(parts) for _ in part]
        rows: list[Any] = [None] * len(texts)
        cuts = cut([sentence for part in parts for sentence in part], owners)
        for owner, tokens in zip(owners, cuts, strict=True):
            row = rows[owner]
            rows[owner] = tokens if row is None else [*row, self.separator, *tokens]
        return rows
