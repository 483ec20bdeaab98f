"""A vocabulary of subwords: a model of SentencePiece."""

import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import sentencepiece

from transformer.data.tokenization.normalization import STAND_IN, WORD_START, normalize
from transformer.data.tokenization.subword_regularization import SegmentationSampler
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.vocabulary import Vocabulary
from transformer.settings.tokenizer import UNK, TokenizerConfig

# The type of a piece that a text is cut into before all others.
_USER_DEFINED = 4


def with_subwords(model: bytes, words: Sequence[str]) -> bytes:
    """Append words to a SentencePiece model, whose pieces (field 1) may go on at its end."""
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
"""Ends the name of a subword of an imported vocabulary that no text is cut into. Texts and
spellings are without it."""


class Subwords(Vocabulary):
    """Splits texts into subwords, with the best or a sampled segmentation, and joins them."""

    def __init__(self, model: bytes, config: TokenizerConfig, tags: Tags, threads: int) -> None:
        self._arguments = (model, config, tags, threads)
        self.processor = sentencepiece.SentencePieceProcessor(
            model_proto=model, num_threads=threads
        )
        self._config, self.tags, self._threads = config, tags, threads
        self.first_tag = int(self.processor.get_piece_size())
        subwords = range(self.first_tag)
        self.control = frozenset(filter(self.processor.is_control, subwords))
        names = enumerate(map(self.processor.id_to_piece, subwords))
        self._uncut = {name[: -len(UNCUT)]: i for i, name in names if name.endswith(UNCUT)}
        self._stand_in, self._word_start = (
            [self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in character.encode()]
            for character in (STAND_IN, WORD_START)
        )

    def __reduce__(self) -> tuple[type["Subwords"], tuple[Any, ...]]:
        return type(self), self._arguments

    def split(
        self, sentences: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[list[int]]:
        texts = [normalize(sentence) for sentence in sentences]
        # To SentencePiece U+2581 is the space: the stand-in is cut into bytes, then replaced.
        cut = [text.replace(WORD_START, STAND_IN) for text in texts]
        rows = self._cut(cut) if seeds is None else list(map(self._sampler.draw, cut, seeds))
        for text, row in zip(texts, rows, strict=True):
            for index in range(len(row) - 2 if WORD_START in text else 0):
                if row[index : index + 3] == self._stand_in:
                    row[index : index + 3] = self._word_start
        return rows

    def join(self, ids: list[int]) -> str:
        return str(self.processor.decode(ids)).replace(UNCUT, "")

    def spell(self, token: int) -> str:
        return str(self.processor.id_to_piece(token)).removesuffix(UNCUT)

    def _cut(self, texts: list[str]) -> list[list[int]]:
        """Split texts; unknown characters that spell an uncut subword are that one."""
        encode = self.processor.encode
        # A list of texts starts a pool of threads, even for one thread.
        rows: list[list[int]] = encode(texts) if self._threads != 1 else list(map(encode, texts))
        for text, row in zip(texts, rows, strict=True) if self._uncut else ():
            if UNK in row:
                names = self.processor.encode(text, out_type=str)
                row[:] = [
                    self._uncut.get(name, UNK) if subword == UNK else subword
                    for subword, name in zip(row, names, strict=True)
                ]
        return rows

    @cached_property
    def _sampler(self) -> SegmentationSampler:
        config = self._config
        return SegmentationSampler(
            self.processor, config.algorithm, config.sampling, list(map(normalize, config.words))
        )
