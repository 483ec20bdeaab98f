"""One vocabulary: the subwords of SentencePiece, followed by the tags.

Knows texts, subwords and ids; does not know which side it is for, nor which tags a text has.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import sentencepiece

from transformer.data.tokenization.config import EOS, UNK, TokenizerConfig
from transformer.data.tokenization.normalization import STAND_IN, normalize
from transformer.data.tokenization.subword_regularization import WORD_START, SegmentationSampler
from transformer.data.tokenization.tags import SENTENCE_END, Tags, is_tag

_USER_DEFINED = 4
"""The type of a piece that a text is cut into before all others."""


def with_words(model: bytes, words: Iterable[str]) -> bytes:
    """Append words to a SentencePiece model as user-defined pieces, unless they are pieces.

    The file is a protocol buffer, whose repeated field 1, the pieces, may go on at its end.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    known = {processor.id_to_piece(index) for index in range(processor.get_piece_size())}
    for word in dict.fromkeys(words):
        if word not in known:
            text, kind = _field(1, word.encode()), bytes([3 << 3, _USER_DEFINED])
            model += _field(1, text + struct.pack("<Bf", 2 << 3 | 5, 0.0) + kind)
    return model


def _field(number: int, content: bytes) -> bytes:
    size, length = len(content), []
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


UNCUT = STAND_IN
"""Ends the name of a subword that no text is cut into, in a SentencePiece model: one of an imported
vocabulary that SentencePiece did not have there. Texts and spellings are without it."""


class Subwords:
    """Splits texts into subwords, with the best or a sampled segmentation, and joins them.

    If the vocabulary has a separator, a text may be several sentences of a document with
    SENTENCE_END between them: each is split by itself, with the separator between them.
    """

    def __init__(self, model: bytes, config: TokenizerConfig, tags: Tags, threads: int) -> None:
        """Wrap a trained SentencePiece model; see `Tokenizer` for ``threads``."""
        self._arguments = (model, config, tags, threads)
        self.processor = sentencepiece.SentencePieceProcessor(
            model_proto=model, num_threads=threads
        )
        self._config = config
        self._tags = tags
        self.first_tag = int(self.processor.get_piece_size())
        """Id of the first tag: the number of subwords."""
        is_control = self.processor.is_control
        self._control = frozenset(
            subword for subword in range(self.first_tag) if is_control(subword)
        )
        names = enumerate(map(self.processor.id_to_piece, range(self.first_tag)))
        self._uncut = {name[: -len(UNCUT)]: i for i, name in names if name.endswith(UNCUT)}
        self._stand_in, self._word_start = map(self._bytes, (STAND_IN, WORD_START))

    def __reduce__(self) -> tuple[type["Subwords"], tuple[Any, ...]]:
        """Pickle the model, not the processor."""
        return type(self), self._arguments

    def __len__(self) -> int:
        return self.first_tag + len(self._tags.spelt)

    @property
    def separator(self) -> int | None:
        """Id of the separator between sentences, if there is one."""
        return self.first_tag if self._tags.sentences else None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the subword ids of texts; a blank text has none."""
        return self._by_sentence(
            texts, lambda sentences, _: self._spelling_out(sentences, self._cut)
        )

    def sample(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Sample a segmentation of each text: a function of text and seed."""

        def draw(sentences: Sequence[str], owners: Sequence[int]) -> list[list[int]]:
            # Equal sentences of a document have the same segmentation.
            return self._spelling_out(
                sentences,
                lambda texts: [
                    self._sampler.draw(text, seeds[owner])
                    for text, owner in zip(texts, owners, strict=True)
                ],
            )

        return self._by_sentence(texts, draw)

    def decode(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """Join subwords into texts; a separator is a space, other tags and controls nothing."""
        texts: list[str] = []
        for row in rows:
            parts = [part for part in self.sentences(row) if part] or [[]]
            text = " ".join(self.processor.decode(parts))
            texts.append(text.replace(UNCUT, "") if self._uncut else text)
        return texts

    def sentences(self, row: Sequence[int]) -> list[list[int]]:
        """Return the subwords of each sentence, without separators, tags and control symbols."""
        parts: list[list[int]] = [[]]
        for subword in row:
            if subword in self._control:
                continue
            if subword < self.first_tag:
                parts[-1].append(int(subword))
            elif subword == self.separator:
                parts.append([])
        return parts

    def spelt(self, ids: Iterable[int]) -> list[str]:
        """Return subwords as spelt in the vocabulary, control symbols and tags too."""
        return [
            self.processor.id_to_piece(int(subword)).removesuffix(UNCUT)
            if subword < self.first_tag
            else self._tags.spelt[int(subword) - self.first_tag]
            for subword in ids
        ]

    def _cut(self, texts: list[str]) -> list[list[int]]:
        """Split texts; unknown characters that spell an uncut subword are that one."""
        rows: list[list[int]] = self.processor.encode(texts)
        for text, row in zip(texts, rows, strict=True) if self._uncut else ():
            if UNK in row:
                names = self.processor.encode(text, out_type=str)
                row[:] = [
                    self._uncut.get(name, UNK) if subword == UNK else subword
                    for subword, name in zip(row, names, strict=True)
                ]
        return rows

    def _spelling_out(
        self, sentences: Sequence[str], cut: Callable[[list[str]], list[list[int]]]
    ) -> list[list[int]]:
        """Split normalized sentences, with U+2581 in bytes: to SentencePiece it is the space."""
        texts = [normalize(sentence) for sentence in sentences]
        rows = cut([text.replace(WORD_START, STAND_IN) for text in texts])
        for text, row in zip(texts, rows, strict=True):
            for index in range(len(row) - 2 if WORD_START in text else 0):
                if row[index : index + 3] == self._stand_in:
                    row[index : index + 3] = self._word_start
        return rows

    def _bytes(self, character: str) -> list[int]:
        return [self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in character.encode()]

    @cached_property
    def _sampler(self) -> SegmentationSampler:
        config = self._config
        return SegmentationSampler(
            self.processor, config.algorithm, config.sampling, list(map(normalize, config.add))
        )

    def grown_from(self, before: "Subwords") -> list[list[int]]:
        """Return for each id those of a smaller vocabulary that mean the same.

        An added word is the subwords that it was cut into, a new tag all former tags, or, if there
        are none, all subwords.
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
        for owner, subwords in zip(owners, cuts, strict=True):
            row = rows[owner]
            rows[owner] = subwords if row is None else [*row, self.separator, *subwords]
        return rows
