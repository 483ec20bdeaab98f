"""A vocabulary of given tokens: characters, or the words between blanks; and of source features.

Text is taken as it is, without Unicode normalization. Characters are code points; decoding gives
the text back exactly, except that a text of blanks alone is empty. Words are what U+0020 separates;
decoding gives the text back with single blanks between words, and none at its ends. A token that
the vocabulary does not have is UNK.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from transformer.common.errors import InputError
from transformer.data.tokenization.config import BOS, EOS, PAD, UNK, TokenizerConfig
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.vocabulary import Vocabulary

FEATURES = "\t"
"""Between a source and its features, in the text of the source."""

UNKNOWN = "\u2047"
"""Text of UNK."""

_CONTROL = ("<pad>", "<unk>", "<s>", "</s>")


class Symbols(Vocabulary):
    """Splits texts into given tokens."""

    def __init__(self, model: bytes, tags: Tags) -> None:
        """Read a model of `count_symbols`; raises ValueError or LookupError if it is damaged."""
        self._arguments = (model, tags)
        read = json.loads(model)
        self._words, self._features = read["kind"] == "words", read["features"]
        symbols, features = map(list, (read["symbols"], read["feature_names"]))
        if not all(isinstance(text, str) for text in (*symbols, *features)):
            raise ValueError("a token is not a text")
        self.first_tag, self.control = len(_CONTROL) + len(symbols) + len(features), _NO_TEXT
        self.tags = tags
        self._texts = [*("", UNKNOWN, "", ""), *symbols, *features]
        self._first_feature = len(_CONTROL) + len(symbols)
        self._ids = {text: index for index, text in enumerate(symbols, len(_CONTROL))}
        self._feature_ids = {text: i for i, text in enumerate(features, self._first_feature)}

    def __reduce__(self) -> tuple[type["Symbols"], tuple[Any, ...]]:
        """Pickle the model."""
        return type(self), self._arguments

    def split(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the ids of the tokens, then of the features."""
        return [list(self._split(sentence)) for sentence in sentences]

    def _split(self, sentence: str) -> Iterable[int]:
        text, features = split_features(sentence, self._features)
        tokens = (self._ids.get(token, UNK) for token in split_text(text, self._words))
        return chain(tokens, (self._feature_ids.get(feature, UNK) for feature in features))

    def join(self, sentences: list[list[int]]) -> list[str]:
        """Return the sentences of these ids, each with its features."""
        return list(map(self._join, sentences))

    def _join(self, ids: list[int]) -> str:
        tokens = [self._texts[token] for token in ids if token < self._first_feature]
        text = (" " if self._words else "").join(tokens)
        features = [self._texts[token] for token in ids if token >= self._first_feature]
        return text + FEATURES + self._features.join(features) if features else text

    def spell(self, token: int) -> str:
        """Return a token as SentencePiece would spell it: a blank as U+2581, words after one."""
        if token < len(_CONTROL):
            return _CONTROL[token]
        text = self._texts[token]
        if token >= self._first_feature:
            return f"{WORD_START}[{text}]"
        if self._words:
            return WORD_START + text
        # The character U+2581 itself is not the blank.
        return {" ": WORD_START, WORD_START: f"<U+{ord(WORD_START):04X}>"}.get(text, text)


_NO_TEXT = frozenset((PAD, BOS, EOS))


def split_text(text: str, words: bool) -> Sequence[str]:
    """Return the characters or the words of a text; a text of blanks alone has none."""
    if words:
        return [word for word in text.split(" ") if word]
    return text if text.strip(" ") else ""


def split_features(text: str, separator: str | None) -> tuple[str, list[str]]:
    """Return a source without its features, and these; without a separator it has none."""
    if separator is None or FEATURES not in text:
        return text, []
    text, _, features = text.rpartition(FEATURES)
    return text, features.split(separator)


def count_symbols(
    texts: Iterable[str], config: TokenizerConfig, kind: str, features: str | None, name: object
) -> bytes:
    """Return the model of a vocabulary of the most frequent tokens of some texts.

    Args:
        texts: of one side, or of both.
        config: the minimum frequency and the maximum size; all features are kept.
        kind: "char" or "words".
        features: their separator, if a text may have some.
        name: of the text, for messages.

    Raises InputError if no text has a token.
    """
    tokens, names = Counter[str](), Counter[str]()
    for text in texts:
        text, found = split_features(text, features)
        tokens.update(split_text(text, kind == "words"))
        names.update(found)
    if not tokens:
        raise InputError(
            f"{name}: no line has text to learn a vocabulary from; give another training text"
        )
    room = len(tokens)
    if config.vocab_size is not None:
        room = max(0, config.vocab_size - len(_CONTROL) - len(names))
    # The most frequent first; equal counts in the order of code points.
    order = sorted(tokens, key=lambda token: (-tokens[token], token))
    symbols = [token for token in order if tokens[token] >= config.min_frequency][:room]
    model = {"kind": kind, "features": features, "symbols": symbols, "feature_names": sorted(names)}
    return json.dumps(model, ensure_ascii=False).encode()
