"""Characters that do not belong in text: control and replacement characters, wrong encodings."""

import re
import unicodedata
from itertools import zip_longest

from transformer.data.quality.base import SIDES, Fault, NumberedPair, Side, either_side, quoted

# The last two code points of each plane are no characters.
_LAST_TWO = "".join(
    f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0xF0000, 2**16)
)
# Invisible characters. No-break and ideographic spaces are typography, and not among them.
_NOTHING = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u2060-\u2064\ufeff\ufff9-\ufffb\ufdd0-\ufdef"
    + _LAST_TWO
)
# Joiners and direction marks; and what needs them: scripts from Hebrew to Burmese, Khmer and
# Mongolian, and emoji.
_JOINERS = "\u200c-\u200f\u202a-\u202e\u2066-\u2069"
_JOINED = re.compile(
    "[\u0590-\u109f\u1780-\u18af\ua840-\uabff\ufb1d-\ufdff\ufe0f\ufe70-\ufefc\U00010a00-\U0001ffff]"
)
_INVISIBLE = re.compile(f"[{_NOTHING}]")
_INVISIBLE_OR_JOINER = re.compile(f"[{_NOTHING}{_JOINERS}]")
_BLANKS = "\t-\x0d\x1c-\x1f\x85\u1680\u2000-\u200a\u2028\u2029\u205f"
_ODD_BLANKS = re.compile(f" *[{_BLANKS}][{_BLANKS} ]*|  +|^ | $")
# Faults beside invisible characters: blanks that end a line or a field, and private use.
_OTHER = re.compile("[\t-\x0d\x1c-\x1f\x85\u2028\u2029\ue000-\uf8ff\U000f0000-\U0010ffff]")
# Separates words in scripts that are written without spaces: Thai, Lao, Burmese, Khmer.
_WORD_SEPARATOR = "\u200b"
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f]"
)
_REPLACEMENT = "\ufffd"
# In a wrong encoding, a character becomes several that are not ASCII: only such text is decoded.
_SEVERAL = re.compile(r"[^\x00-\x7f][^\x00-\x7f]|Ã |[\x80-\x9f]")


def remove_invisible(text: str) -> str:
    """Return the text without invisible characters, except those that its script needs."""
    if text.isascii() and text.isprintable():
        return text
    kept = _WORD_SEPARATOR if _WITHOUT_SPACES.search(text) else ""
    return _invisible_in(text).sub(lambda found: found[0] if found[0] == kept else "", text)


def normalize_blanks(text: str) -> str:
    """Return the text with one space for odd blanks and several, and none at its ends."""
    return _ODD_BLANKS.sub(" ", text).strip(" ")


def undo_wrong_encoding(text: str) -> str:
    """Return the text in its right encoding; raises ImportError without ftfy."""
    from ftfy import fix_encoding

    return fix_encoding(text) if _SEVERAL.search(text) else text


def _invisible_in(text: str) -> re.Pattern[str]:
    return _INVISIBLE if _JOINED.search(text) else _INVISIBLE_OR_JOINER


@either_side
def find_control(side: Side, text: str) -> str | None:
    """Name the first control, private, line-separating or invisible character, or tab."""
    if text.isascii() and text.isprintable():
        return None
    kept = _WORD_SEPARATOR if _WITHOUT_SPACES.search(text) else ""
    for found in (*_invisible_in(text).finditer(text), *_OTHER.finditer(text)):
        if found[0] != kept:
            return f"U+{ord(found[0]):04X} in {quoted(text, found.start())}"
    return None


def find_replacement(pair: NumberedPair) -> Fault | None:
    """Show the first U+FFFD of one side: a character was lost. On both sides it is meant."""
    indices = [text.find(_REPLACEMENT) for text in pair.texts]
    for side, text, index, other in zip(SIDES, pair.texts, indices, indices[::-1], strict=True):
        if index >= 0 > other:
            return Fault(side, f"U+FFFD in {quoted(text, index)}")
    return None


@either_side
def find_not_nfc(side: Side, text: str) -> str | None:
    """Show the first character that the normal form NFC spells otherwise."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return None
    return f"not NFC: {_quote_difference(text, unicodedata.normalize('NFC', text))}"


@either_side
def find_mojibake(side: Side, text: str) -> str | None:
    """Show the first character of text that makes sense in another encoding."""
    decoded = undo_wrong_encoding(text)
    return None if decoded == text else _quote_difference(text, decoded)


def _quote_difference(text: str, right: str) -> str:
    """Quote a text around the first character that differs from the right text."""
    characters = enumerate(zip_longest(text, right))
    return quoted(text, next(index for index, (one, other) in characters if one != other))
