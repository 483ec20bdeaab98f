"""Markup in text: HTML and XML tags, comments and entities.

Does not know what a tag means. A less-than sign alone is text.
"""

import re

from transformer.doctor.check import SideCheck
from transformer.doctor.pair import Side, quoted

_MARKUP = re.compile(
    r"</?[A-Za-z][^<>]*>|<!--|&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
)


class Markup(SideCheck):
    """Tags and entities, which a model would learn to write."""

    name = "markup"

    def said(self, side: Side, text: str) -> str | None:
        """Show the first piece of markup."""
        if "<" not in text and "&" not in text:
            return None
        found = _MARKUP.search(text)
        return None if found is None else f"{quoted(found[0])} in {quoted(text, found.start())}"
