"""Cuts any string into tags, text and the rest of HTML or XML, in linear time and without loss.

``html.parser`` of common Python releases needs quadratic time for hostile input. Source:
https://html.spec.whatwg.org/multipage/parsing.html#tokenization, without escaped scripts.
"""

import re
from collections.abc import Iterator
from html import unescape
from typing import Literal, NamedTuple

Kind = Literal["text", "open", "close", "void", "other"]
"""``void`` is a tag that needs no end; ``other`` a comment, a declaration or a raw text."""

_VOID = {
    *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param"),
    *("source", "track", "wbr"),
}
RAW = frozenset({"script", "style", "textarea", "iframe", "noembed", "noframes", "xmp"})
"""Elements without tags inside; so is ``title``, but its text is translated."""

_NAME = re.compile(r"</?([^\W\d_][^\s/>]*)")
_XML_NAME = re.compile(r"</?([^\W\d][^\s/>]*)")
# Possessive: it tries no character twice.
_TAG_END = re.compile(r"""(?>[^>=]+|=\s*+"[^"]*"|=\s*+'[^']*'|=)*+>""")
# Without an end, it goes to the end of the source.
_OTHER = r"<!\[CDATA\[.*?(?:\]\]>|\Z)|<[!?].*?(?:>|\Z)"
_HTML_OTHER = re.compile(
    rf"<!--(?:-?>|.*?(?:--!?>|\Z))|{_OTHER}|</(?=[\W\d_]).*?(?:>|\Z)", re.DOTALL
)
_XML_OTHER = re.compile(rf"<!--.*?(?:-->|\Z)|{_OTHER}", re.DOTALL)
_NUMBER = re.compile(r"&#0*([0-9]{1,8})[0-9]*")
_ATTRIBUTE = re.compile(r"""([^\s/>="'<]++)(?>\s*=\s*("[^"]*"|'[^']*'|[^\s>"']*))?""")


class Token(NamedTuple):
    """A stretch of the source; ``name`` is that of a tag, in lower case for HTML."""

    kind: Kind
    source: str
    name: str = ""

    @property
    def text(self) -> str:
        if self.source.startswith("<![CDATA["):
            return self.source[9:-3]
        return _unescape(self.source)

    @property
    def attributes(self) -> dict[str, str]:
        """Of a tag, by names in lower case; the first of a name counts."""
        found: dict[str, str] = {}
        for match in _ATTRIBUTE.finditer(self.source, len(self.name) + 1):
            found.setdefault(match[1].lower(), _unescape((match[2] or "").strip("\"'")))
        return found


def _unescape(text: str) -> str:
    # Python reads no number of thousands of digits; eight are enough for any character.
    return unescape(_NUMBER.sub(r"&#\1", text))


def tokenize(source: str, *, xml: bool = False) -> Iterator[Token]:
    """The tokens of a source; a tag without an end is text."""
    start = at = 0
    while (at := source.find("<", at)) >= 0:
        token = _token(source, at, xml)
        if token is None:
            at += 1
            continue
        if start < at:
            yield Token("text", source[start:at])
        if not token.source:
            start = at
            break
        yield token
        start = at = at + len(token.source)
        if token.kind == "open" and not xml and (token.name in RAW or token.name == "title"):
            # No tag but the end is in it.
            ends = re.compile(rf"</{token.name}(?=[\s/>])", re.IGNORECASE).search(source, start)
            at = ends.start() if ends else len(source)
            if start < at:
                yield Token("text" if token.name == "title" else "other", source[start:at])
            start = at
    if start < len(source):
        yield Token("text", source[start:])


def _token(source: str, at: int, xml: bool) -> Token | None:
    """The token that a ``<`` begins; an empty one if the rest of the source is text."""
    other = (_XML_OTHER if xml else _HTML_OTHER).match(source, at)
    if other is not None:
        text = xml and other[0].startswith("<![CDATA[") and other[0].endswith("]]>")
        return Token("text" if text else "other", other[0])
    match = (_XML_NAME if xml else _NAME).match(source, at)
    if match is None:
        return None
    end_match = _TAG_END.match(source, match.end())
    if end_match is None:
        return Token("text", "")
    name = match[1] if xml else match[1].lower()
    tag = source[at : end_match.end()]
    if source.startswith("</", at):
        return Token("close", tag, name)
    void = tag.endswith("/>") if xml else name in _VOID
    return Token("void" if void else "open", tag, name)
