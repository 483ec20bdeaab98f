"""Normalizes a text before it is split into subwords (Unicode Standard Annex 15)."""

import unicodedata

WORD_START = "\u2581"
"""SentencePiece's sign for the space before a word."""

STAND_IN = "\uffff"
"""A noncharacter, which no normalized text holds."""


def normalize(text: str) -> str:
    """Return the text as the tokenizer keeps it.

    Characters are composed (NFC), several spaces become one space, and spaces at the ends are
    removed. Half of a surrogate pair (impossible in UTF-8) becomes a question mark. U+FFFF, which
    is no character, becomes U+FFFD. Nothing else changes: compatibility forms (NFKC) would alter
    the target text.
    """
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
        text = unicodedata.normalize("NFC", text).replace(STAND_IN, "\ufffd")
    return " ".join(word for word in text.split(" ") if word)
