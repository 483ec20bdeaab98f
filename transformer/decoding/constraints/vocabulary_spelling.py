"""The spelling of the subwords of the target vocabulary: bytes and kinds of characters."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer.data.text.phrases import OTHER, SPACE, WORD, char_kind
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tags import is_tag
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

WITHIN = 3
"""The kind of a byte that continues a character."""

Spelling = tuple[tuple[int, int], ...]
"""(byte, kind) of each byte of a text."""

_BYTES = re.compile(rf"{WORD_START}?((<0x[0-9A-F]{{2}}>)+)")
# First bytes of letters: Latin to Arabic, Indic and Georgian, Ethiopic to Hangul. Other characters
# beyond ASCII are mostly punctuation, signs, or of scripts without spaces.
_LETTER_BYTES = frozenset((*range(0xC3, 0xE0), 0xE0, 0xE1, 0xEB, 0xEC, 0xED))


def spell(text: str) -> Spelling:
    """Spell a text; any space becomes the byte of a plain space."""
    spelled: list[tuple[int, int]] = []
    for character in text:
        kind = char_kind(character)
        first, *rest = b" " if kind == SPACE else character.encode()
        spelled += [(first, kind), *((byte, WITHIN) for byte in rest)]
    return tuple(spelled)


@dataclass(frozen=True)
class Vocabulary:
    """The spelling of all subwords, in arrays of one row a subword."""

    spellings: tuple[Spelling, ...]
    """Of each subword; empty for control symbols."""
    values: Int[np.ndarray, "vocab longest"]
    """Bytes, padded with -1."""
    kinds: Int[np.ndarray, "vocab longest"]
    lengths: Int[np.ndarray, " vocab"]
    """In bytes."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> "Vocabulary":
        subwords = tokenizer.subwords(range(tokenizer.target_vocab_size))
        return cls.from_spellings([_spell_subword(*numbered) for numbered in enumerate(subwords)])

    @classmethod
    def from_spellings(cls, spellings: Sequence[Spelling]) -> "Vocabulary":
        lengths = np.array([len(spelling) for spelling in spellings])
        filled = np.arange(lengths.max()) < lengths[:, None]
        values, kinds = np.full(filled.shape, -1), np.zeros(filled.shape, dtype=np.int64)
        values[filled], kinds[filled] = zip(*chain(*spellings), strict=True)
        return cls(tuple(spellings), values, kinds, lengths)

    @cached_property
    def numbers(self) -> dict[bytes, int]:
        """The subword that is spelled in these bytes."""
        return {_bytes(spelling): number for number, spelling in enumerate(self.spellings)}

    @property
    def continues_word(self) -> Bool[Tensor, " vocab"]:
        return torch.from_numpy((self.kinds[:, 0] == WORD) & (self.lengths > 0))

    def longest(self, rest: Spelling) -> int:
        """The longest subword that this text begins with; -1 for an empty text."""
        text = _bytes(rest)
        ends = range(min(len(text), self.values.shape[1]), 0, -1)
        return next((self.numbers[text[:end]] for end in ends if text[:end] in self.numbers), -1)

    def join(self, subwords: Sequence[int]) -> Spelling:
        return tuple(pair for subword in subwords for pair in self.spellings[subword])


def _bytes(spelling: Spelling) -> bytes:
    return bytes(byte for byte, _ in spelling)


def _spell_subword(number: int, subword: str) -> Spelling:
    if number in (PAD, BOS, EOS) or is_tag(subword):
        return ()
    if number == UNK:
        return spell(" \u2047 ")  # as SentencePiece writes it
    if match := _BYTES.fullmatch(subword):
        content = bytes.fromhex(match[1].replace("<0x", "").replace(">", ""))
        space = spell(" ") if subword.startswith(WORD_START) else ()
        return (*space, *((byte, _byte_kind(byte)) for byte in content))
    return spell(subword.replace(WORD_START, " "))


def _byte_kind(byte: int) -> int:
    if byte < 0x80:
        return char_kind(chr(byte))
    if byte < 0xC0:
        return WITHIN
    return WORD if byte in _LETTER_BYTES else OTHER
