"""Text that was read in another encoding than it was written in: ``schÃ¶n`` for ``schön``.

Needs ftfy (the extra ``doctor``). Only what ftfy can undo counts: guillemets after an umlaut only
look like damage.
"""

import re

from transformer.data.quality.base import SideCheck
from transformer.data.quality.pair import Side, first_difference, quoted

# A character of several bytes becomes several that are not ASCII: other text needs no closer look.
_SEVERAL = re.compile(r"[^\x00-\x7f][^\x00-\x7f]|Ã |[\x80-\x9f]")


def undo_wrong_encoding(text: str) -> str:
    """Return the text in its right encoding; raises ImportError without ftfy."""
    from ftfy import fix_encoding

    return fix_encoding(text) if _SEVERAL.search(text) else text


class Mojibake(SideCheck):
    """Text that makes sense in another encoding."""

    name = "mojibake"

    def describe(self, side: Side, text: str) -> str | None:
        """Show the first damaged character."""
        decoded = undo_wrong_encoding(text)
        return None if decoded == text else quoted(text, first_difference(text, decoded))
