"""Text that was read in another encoding than it was written in: ``schÃ¶n`` for ``schön``.

Needs ftfy (the extra ``doctor``). Only what ftfy can undo counts: guillemets after an umlaut only
look like damage.
"""

import re

from transformer.data.quality.base import SideCheck
from transformer.data.quality.pair import Side, quoted

# A character of several bytes becomes several that are not ASCII: the rest needs no closer look.
_SEVERAL = re.compile(r"[^\x00-\x7f][^\x00-\x7f]|Ã |[\x80-\x9f]")


class Decoder:
    """Undoes a wrong or a double encoding."""

    def __init__(self) -> None:
        """Raises ImportError where ftfy is not installed."""
        from ftfy import fix_encoding

        self._fix = fix_encoding

    def __call__(self, text: str) -> str:
        """Return the text as it was meant; the same where nothing is wrong."""
        return self._fix(text) if _SEVERAL.search(text) else text


class Mojibake(SideCheck):
    """Text that another encoding makes sense of."""

    name = "mojibake"

    def __init__(self, split: str, most: int, decoder: Decoder) -> None:
        """Begin to count; see `PairCheck`."""
        super().__init__(split, most)
        self._decoded = decoder

    def said(self, side: Side, text: str) -> str | None:
        """Show the first place that is meant otherwise."""
        meant = self._decoded(text)
        if meant == text:
            return None
        characters = enumerate(zip(text, meant, strict=False))
        index = next((i for i, (one, other) in characters if one != other), len(meant))
        return quoted(text, index)
