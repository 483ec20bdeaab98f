"""Characters that should not be there: control characters, replacement characters, odd forms.

Does not know languages, nor what the tokenizer makes of a character.
"""

import re
import unicodedata
from collections.abc import Callable

from transformer.data.quality.base import Fault, PairCheck, SideCheck
from transformer.data.quality.pair import SIDES, NumberedPair, Side, quoted

# Of a plane, which are no characters.
_LAST_TWO = "".join(
    f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0xF0000, 2**16)
)
# What spells nothing. Not among it: no-break and ideographic spaces, which are typography.
_NOTHING = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u2060-\u2064\ufeff\ufff9-\ufffb\ufdd0-\ufdef"
    + _LAST_TWO
)
# Joiners and direction marks, and those that need them: scripts from Hebrew to Burmese, Khmer and
# Mongolian, and emoji.
_JOINERS = "\u200c-\u200f\u202a-\u202e\u2066-\u2069"
_JOINED = re.compile(
    "[\u0590-\u109f\u1780-\u18af\ua840-\uabff\ufb1d-\ufdff\ufe0f\ufe70-\ufefc\U00010a00-\U0001ffff]"
)
_INVISIBLE, _INVISIBLE_OR_JOINER = (
    re.compile(f"[{_NOTHING}]"),
    re.compile(f"[{_NOTHING}{_JOINERS}]"),
)
_BLANKS = "\t-\x0d\x1c-\x1f\x85\u1680\u2000-\u200a\u2028\u2029\u205f"
_ODD_BLANKS = re.compile(f" *[{_BLANKS}][{_BLANKS} ]*|  +|^ | $")
# Of blanks only those that end a line or a field elsewhere, and what has a meaning in private.
_OTHER = re.compile("[\t-\x0d\x1c-\x1f\x85\u2028\u2029\ue000-\uf8ff\U000f0000-\U0010ffff]")
# It parts words in scripts that are written without spaces: Thai, Lao, Burmese, Khmer.
_PARTS_WORDS = "\u200b"
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f]"
)
_REPLACEMENT = "\ufffd"


def visible(text: str) -> str:
    """Return the text without invisible characters, but those that its script is spelt with."""
    if text.isascii() and text.isprintable():
        return text
    return _invisible_in(text).sub(_kept_between_words(text), text)


def with_plain_blanks(text: str) -> str:
    """Return the text with one space for odd blanks and several, and none at its ends."""
    return _ODD_BLANKS.sub(" ", text).strip(" ")


def _invisible_in(text: str) -> re.Pattern[str]:
    return _INVISIBLE if _JOINED.search(text) else _INVISIBLE_OR_JOINER


def _kept_between_words(text: str) -> Callable[[re.Match[str]], str]:
    parted = _WITHOUT_SPACES.search(text) is not None
    return lambda found: found[0] if parted and found[0] == _PARTS_WORDS else ""


class ControlCharacters(SideCheck):
    """Control, private and line-separating characters, invisible ones, soft hyphens, tabs."""

    name = "control"

    def said(self, side: Side, text: str) -> str | None:
        """Name the first such character."""
        if text.isascii() and text.isprintable():
            return None
        kept = _kept_between_words(text)
        for found in (*_invisible_in(text).finditer(text), *_OTHER.finditer(text)):
            if not kept(found):
                return f"U+{ord(found[0]):04X} in {quoted(text, found.start())}"
        return None


class ReplacementCharacters(PairCheck):
    """U+FFFD on one side: a character was lost. On both sides it is what the text is about."""

    name = "replacement"

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Show the first place."""
        texts = pair.source, pair.target
        indices = [text.find(_REPLACEMENT) for text in texts]
        for side, text, index, other in zip(SIDES, texts, indices, indices[::-1], strict=True):
            if index >= 0 > other:
                return Fault(side, f"U+FFFD in {quoted(text, index)}")
        return None


class DecomposedCharacters(SideCheck):
    """Text that is not in the normal form NFC, which every translation is written in."""

    name = "not_nfc"

    def said(self, side: Side, text: str) -> str | None:
        """Show the first character that NFC spells otherwise."""
        if text.isascii() or unicodedata.is_normalized("NFC", text):
            return None
        composed = unicodedata.normalize("NFC", text)
        characters = zip(text, composed, strict=False)
        index = next((i for i, (one, other) in enumerate(characters) if one != other), 0)
        return f"not NFC: {quoted(text, index)}"
