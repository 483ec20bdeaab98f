"""One vocabulary: texts to tokens and back, with the tags after the tokens."""

import json
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice

from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.data.text.word_alignment import subword_words
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tags import SENTENCE_END, Tags, is_tag
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK, TokenizerConfig

Pairs = Callable[[], Iterable[tuple[str, str]]]
"""Called at the start of each pass over aligned text."""
CONTROL = ("<pad>", "<unk>", "<s>", "</s>")
"""The control symbols as spelled, in the order of their ids."""


class Vocabulary(ABC):
    """Splits texts into tokens, each sentence of a document by itself, and joins them."""

    first_tag: int
    """Id of the first tag: the number of tokens."""
    control: frozenset[int]
    tags: Tags
    never_written: tuple[int, ...] = ()
    """Ids of tokens that no target has."""

    def __len__(self) -> int:
        return self.first_tag + len(self.tags.spelled)

    @abstractmethod
    def split(
        self, sentences: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[list[int]]:
        """Return the token ids of sentences; see `encode`."""

    @abstractmethod
    def join(self, ids: list[int]) -> str:
        """Return the sentence of token ids, without tags and control symbols."""

    @abstractmethod
    def spell(self, token: int) -> str:
        """Return a token as spelled in the vocabulary."""

    @property
    def separator(self) -> int | None:
        return self.first_tag if self.tags.sentences else None

    def encode(self, texts: Sequence[str], seeds: Sequence[int] | None = None) -> list[list[int]]:
        """Return the token ids of texts, sampled if there are seeds; a blank text has none."""
        separator = self.separator
        if separator is None:
            return self.split(texts, seeds)
        parts = [text.split(SENTENCE_END) for text in texts]
        # Equal sentences of a document have the same segmentation.
        repeated = [seed for seed, part in zip(seeds or (), parts, strict=False) for _ in part]
        sentences = [sentence for part in parts for sentence in part]
        cuts = iter(self.split(sentences, None if seeds is None else repeated))
        rows = []
        for part in parts:
            row = list(next(cuts))
            for ids in islice(cuts, len(part) - 1):
                row += [separator, *ids]
            rows.append(row)
        return rows

    def decode(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """Join tokens into texts; a separator becomes a space, other tags and controls vanish."""
        return [" ".join(map(self.join, filter(None, self.sentences(row)))) for row in rows]

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

    def spelled(self, ids: Iterable[int]) -> list[str]:
        """Return tokens as spelled in the vocabulary, control symbols and tags too."""
        return [
            self.spell(int(token))
            if token < self.first_tag
            else self.tags.spelled[int(token) - self.first_tag]
            for token in ids
        ]

    def words(self, ids: Sequence[int], text: str) -> list[int]:
        """The number of the word of each token of a text, by the spaces of the text; see
        `subword_words`. The text may also be what the tokens spell."""
        del text  # the spelling tells
        return subword_words(self.spelled(ids))

    def grown_from(self, before: "Vocabulary") -> list[list[int]]:
        """Return for each id those of a smaller vocabulary that mean the same, or all its tags."""
        known = {symbol: [index] for index, symbol in enumerate(before.spelled(range(len(before))))}
        tags = range(before.first_tag, len(before)) or range(EOS + 1, before.first_tag)
        return [
            known.get(symbol) or (list(tags) if is_tag(symbol) else before.encode([symbol])[0])
            for symbol in self.spelled(range(len(self)))
        ]


FEATURES = "\t"
"""Before the features of a source, and before each of them in the vocabulary."""


@dataclass(frozen=True)
class _Model:
    words: bool
    features: str | None
    symbols: tuple[str, ...]
    decompose: bool = False


class Symbols(Vocabulary):
    """Splits texts into characters or words, without Unicode normalization.

    Characters are code points; decoding gives the text back exactly, except that a text of blanks
    alone is empty. With ``decompose`` they are those of the normal form NFD, and decoding gives NFC
    (Unicode Standard Annex 15). Words are what U+0020 separates; decoding gives single blanks
    between words, and none at the ends. A token that the vocabulary does not have is UNK.
    """

    def __init__(self, model: bytes, tags: Tags) -> None:
        """Read a model of `count_symbols`; raises ValueError or InputError if damaged."""
        read = typed(_Model, json.loads(model), "vocabulary")
        self._words = read.words
        self._features = read.features
        self._decompose = read.decompose
        # U+2047 stands for UNK, as in SentencePiece.
        self._texts = ["", "\u2047", "", "", *read.symbols]
        self._ids = {symbol: index for index, symbol in enumerate(read.symbols, len(CONTROL))}
        self.first_tag = len(self._texts)
        self.tags = tags
        self.control = frozenset((PAD, BOS, EOS))
        self.never_written = (UNK, *filter(self._is_feature, range(self.first_tag)))

    def split(
        self, sentences: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[list[int]]:
        del seeds  # there is one segmentation
        return [
            [
                self._ids.get(token, UNK)
                for token in split_text(text, self._words, self._features, self._decompose)
            ]
            for text in sentences
        ]

    def join(self, ids: list[int]) -> str:
        tokens = [self._texts[token] for token in ids if not self._is_feature(token)]
        features = [self._texts[token][1:] for token in ids if self._is_feature(token)]
        text = (" " if self._words else "").join(tokens)
        if self._decompose:
            text = unicodedata.normalize("NFC", text)
        if not features:
            return text
        return text + FEATURES + (self._features or "").join(features)

    def spell(self, token: int) -> str:
        """Return a token as SentencePiece would spell it: a blank as U+2581, words after one."""
        if token < len(CONTROL):
            return WORD_START + CONTROL[UNK] if self._words and token == UNK else CONTROL[token]
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
    words = config.algorithms[side] == "words"
    features = config.features if side == 0 else None
    decompose = config.decompose and not words
    counts = Counter(
        token for text in texts for token in split_text(text, words, features, decompose)
    )
    # Equal counts in the order of code points.
    order = sorted(counts, key=lambda token: (-counts[token], token))
    if config.vocab_size is not None:
        order = order[: config.vocab_size - len(CONTROL)]
    symbols = [token for token in order if counts[token] >= config.min_frequency]
    if not symbols:
        raise InputError(
            f"{name}: no line has text to learn a vocabulary from, or no token occurs "
            f"tokenizer.min_frequency={config.min_frequency} times; give other text, or lower it"
        )
    model = _Model(words, features, tuple(symbols), decompose)
    return json.dumps(asdict(model), ensure_ascii=False).encode()
