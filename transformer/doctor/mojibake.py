"""Text that was read in another encoding than it was written in: ``schÃ¶n`` for ``schön``.

Needs ftfy (the extra ``doctor``), whose measure of badness it asks. Does not mend anything.
"""

import re

from transformer.doctor.check import SideCheck
from transformer.doctor.pair import Side, quoted

# A character of several bytes becomes several that are not ASCII: the rest needs no closer look.
_SEVERAL = re.compile(r"[^\x00-\x7f][^\x00-\x7f]|Ã ")


class Mojibake(SideCheck):
    """Text in which ftfy sees such damage."""

    name = "mojibake"

    def __init__(self, split: str, most: int) -> None:
        """Begin to count; see `PairCheck`.

        Raises:
            ImportError: ftfy is not installed.
        """
        from ftfy.badness import is_bad

        super().__init__(split, most)
        self._is_bad = is_bad

    def said(self, side: Side, text: str) -> str | None:
        """Show the first place that could be meant."""
        found = _SEVERAL.search(text)
        if found is None or not self._is_bad(text):
            return None
        return quoted(text, found.start())
