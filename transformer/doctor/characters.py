"""Characters that should not be there: control characters, replacement characters, odd forms.

Does not know languages, nor what the tokenizer makes of a character.
"""

import re
import unicodedata

from transformer.doctor.check import SideCheck
from transformer.doctor.pair import Side, quoted

# Of a plane, which are no characters.
_LAST_TWO = "".join(
    f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0xF0000, 2**16)
)
# Not among them: joiners and direction marks (U+202A to 202E, U+2066 to 2069 too), which some
# scripts are spelt with, and no-break and ideographic spaces, which are typography.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u200b\u2028\u2029\u2060-\u2064\ufeff\ufff9-\ufffb"
    "\ue000-\uf8ff\ufdd0-\ufdef\U000f0000-\U0010ffff" + _LAST_TWO + "]"
)
# It parts words in scripts that are written without spaces: Thai, Lao, Burmese, Khmer.
_PARTS_WORDS = "\u200b"
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f]"
)
_REPLACEMENT = "\ufffd"


class ControlCharacters(SideCheck):
    """Control, private and line-separating characters, U+200B, U+FEFF, soft hyphens, tabs."""

    name = "control"

    def said(self, side: Side, text: str) -> str | None:
        """Name the first such character."""
        for found in _CONTROL.finditer(text):
            if found[0] != _PARTS_WORDS or not _WITHOUT_SPACES.search(text):
                return f"U+{ord(found[0]):04X} in {quoted(text, found.start())}"
        return None


class ReplacementCharacters(SideCheck):
    """U+FFFD: a character was lost when the text was decoded."""

    name = "replacement"

    def said(self, side: Side, text: str) -> str | None:
        """Show the first place."""
        place = text.find(_REPLACEMENT)
        return None if place < 0 else f"U+FFFD in {quoted(text, place)}"


class DecomposedCharacters(SideCheck):
    """Text that is not in the normal form NFC, which every translation is written in."""

    name = "not_nfc"

    def said(self, side: Side, text: str) -> str | None:
        """Show the first character that NFC spells otherwise."""
        if text.isascii() or unicodedata.is_normalized("NFC", text):
            return None
        composed = unicodedata.normalize("NFC", text)
        characters = zip(text, composed, strict=False)
        place = next((i for i, (one, other) in enumerate(characters) if one != other), 0)
        return f"not NFC: {quoted(text, place)}"
