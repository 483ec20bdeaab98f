"""A vocabulary of given tokens: characters, or the words between blanks; and features of a source.

Text is taken without Unicode normalization. Characters are code points; decoding gives the text
back exactly, except that a text of blanks alone is empty. With ``decompose`` they are those of the
normal form NFD, and decoding gives NFC (Unicode Standard Annex 15). Words are what U+0020
separates; decoding gives single blanks between words, and none at the ends. A token that the
vocabulary does not have is UNK.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.data.tokenization.config import BOS, EOS, PAD, UNK, TokenizerConfig
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.vocabulary import Vocabulary

FEATURES = "\t"
"""Before the features of a source, and before each of them in the vocabulary."""

_CONTROL = ("<pad>", "<unk>", "<s>", "</s>")


@dataclass(frozen=True)
class _Model:
    words: bool
    features: str | None
    symbols: tuple[str, ...]
    decompose: bool = False
    """Characters are those of NFD."""


class Symbols(Vocabulary):
    """Splits texts into given tokens."""

    def __init__(self, model: bytes, tags: Tags) -> None:
        """Read a model of `count_symbols`; raises ValueError or InputError if damaged."""
        self._arguments = (model, tags)
        read = typed(_Model, json.loads(model), "vocabulary")
        self._words, self._features, symbols = read.words, read.features, read.symbols
        self._decompose = read.decompose
        # U+2047 stands for UNK, as in SentencePiece.
        self._texts = ["", "\u2047", "", "", *symbols]
        self._ids = {symbol: index for index, symbol in enumerate(symbols, len(_CONTROL))}
        self.first_tag, self.tags = len(self._texts), tags
        self.control = frozenset((PAD, BOS, EOS))
        self.never_written = (UNK, *filter(self._is_feature, range(self.first_tag)))

    def __reduce__(self) -> tuple[type["Symbols"], tuple[Any, ...]]:
        """Pickle the model."""
        return type(self), self._arguments

    def split(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the ids of the characters or words of sentences, then of their features."""
        return [
            [
                self._ids.get(token, UNK)
                for token in split_text(text, self._words, self._features, self._decompose)
            ]
            for text in sentences
        ]

    def join(self, sentences: list[list[int]]) -> list[str]:
        """Return the sentences of these ids, each with its features."""
        return list(map(self._join, sentences))

    def _join(self, ids: list[int]) -> str:
        tokens = [self._texts[token] for token in ids if not self._is_feature(token)]
        features = [self._texts[token][1:] for token in ids if self._is_feature(token)]
        text = (" " if self._words else "").join(tokens)
        if self._decompose:
            text = unicodedata.normalize("NFC", text)
        return text + FEATURES + (self._features or "").join(features) if features else text

    def spell(self, token: int) -> str:
        """Return a token as SentencePiece would spell it: a blank as U+2581, words after one."""
        if token < len(_CONTROL):
            return WORD_START * (self._words and token == UNK) + _CONTROL[token]
        text = self._texts[token]
        if self._is_feature(token):
            return f"{WORD_START}[{text[1:]}]"
        if self._words:
            return WORD_START + text
        # The character U+2581 itself is not the blank.
        return {" ": WORD_START, WORD_START: "<U+2581>"}.get(text, text)

    def _is_feature(self, token: int) -> bool:
        return self._features is not None and self._texts[token].startswith(FEATURES)


def split_text(text: str, words: bool, features: str | None, decompose: bool) -> list[str]:
    """Return the characters or words of a text, then its features if their separator is given."""
    names: list[str] = []
    if features is not None and FEATURES in text:
        text, _, after = text.partition(FEATURES)
        names = [FEATURES + name for name in after.split(features)]
    if words:
        return [word for word in text.split(" ") if word] + names
    if decompose:
        text = unicodedata.normalize("NFD", text)
    return [*(text if text.strip(" ") else ""), *names]


def count_symbols(texts: Iterable[str], config: TokenizerConfig, side: int, name: object) -> bytes:
    """Return the model of a vocabulary: the most frequent tokens of texts, by ``config``."""
    words, features = config.algorithms[side] == "words", None if side else config.features
    decompose = config.decompose and not words
    counts = Counter(
        token for text in texts for token in split_text(text, words, features, decompose)
    )
    # Equal counts in the order of code points.
    order = sorted(counts, key=lambda token: (-counts[token], token))
    room = len(order) if config.vocab_size is None else config.vocab_size - len(_CONTROL)
    symbols = [token for token in order[:room] if counts[token] >= config.min_frequency]
    if not symbols:
        raise InputError(
            f"{name}: no line has text to learn a vocabulary from, or no token occurs "
            f"tokenizer.min_frequency={config.min_frequency} times; give other text, or lower it"
        )
    model = _Model(words, features, tuple(symbols), decompose)
    return json.dumps(asdict(model), ensure_ascii=False).encode()
