"""Markup in text: HTML and XML tags, comments and entities.

A name between angle brackets alone is no markup: <stdio.h>, <a@b.c>, <FILE>, List<String>.
"""

import re
from html.entities import html5

from transformer.data.quality.base import SIDES, Fault, NumberedPair, quoted

_TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*)((?:\s[^<>]*)?)(/?)>")
_ATTRIBUTE = re.compile(r"\s[\w:-]+=[\"'\w#]")
# Tags of HTML that are no words, so that no placeholder has such a name.
_HTML = re.compile(
    "b|big|blockquote|br|center|dd|del|div|dl|dt|em|font|h[1-6]|hr|i|img|ins|iframe|kbd|li|nobr|ol|"
    "p|pre|span|strike|strong|su[bp]|tbody|t[dhrt]|thead|ul?"
)
ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
"""Matches entities, and names that HTML does not have; see `is_entity`."""
_COMMENT = re.compile(r"<!--|<!\[CDATA\[")


def find_markup(text: str) -> re.Match[str] | None:
    """Return the first tag, comment or entity of a text."""
    if "<" in text:
        tags = list(_TAG.finditer(text))
        closed = {tag[2] for tag in tags if tag[1]} & {tag[2] for tag in tags if not tag[1]}
        for tag in tags:
            name = tag[2].lower()
            if _HTML.fullmatch(name) or tag[4] or tag[2] in closed or _ATTRIBUTE.match(tag[3]):
                return tag
        if found := _COMMENT.search(text):
            return found
    entities = ENTITY.finditer(text) if "&" in text else ()
    return next(filter(is_entity, entities), None)


def is_entity(found: re.Match[str]) -> bool:
    """Whether a match of `ENTITY` is an entity of HTML."""
    return found[0][1] == "#" or found[0][1:] in html5


def find_markup_fault(sides: int, pair: NumberedPair) -> Fault | None:
    """Show the first tag, comment or entity if so many sides have one.

    On one side, a model would learn to write it or to leave it out; on both it may be intended.
    """
    found = [find_markup(text) for text in pair.texts]
    if len(found) - found.count(None) != sides:
        return None
    for side, text, match in zip(SIDES, pair.texts, found, strict=True):
        if match is not None:
            return Fault(side, f"{quoted(match[0])} in {quoted(text, match.start())}")
    return None
