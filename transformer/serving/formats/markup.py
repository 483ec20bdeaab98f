"""Cuts HTML or XML into blocks, such as paragraphs, and writes their translations.

``tokenize`` cuts any string into tags, text and the rest of HTML or XML, in linear time and without
loss: ``html.parser`` of common Python releases needs quadratic time for hostile input. Source:
https://html.spec.whatwg.org/multipage/parsing.html#tokenization, without escaped scripts.

A block is a text whose marks are tags. A tag ends a block if its partner is not in the same block,
or if it is around other blocks. So every tag is written once and nests as in the source.
Attributes, such as ``title``, are not translated.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape, unescape
from typing import Literal, NamedTuple

from transformer.serving.formats.tag_projection import Mark, MarkedText, Span, write_tagged

Kind = Literal["text", "open", "close", "void", "other"]
"""``void`` is a tag that needs no end; ``other`` a comment, a declaration or a raw text."""

_VOID = {
    "area",
    "base",
    "br",
    "col",
    "embed",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "param",
    "source",
    "track",
    "wbr",
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
        """The attributes of a tag by their names in lower case; of equal names, the first."""
        attributes: dict[str, str] = {}
        for match in _ATTRIBUTE.finditer(self.source, len(self.name) + 1):
            attributes.setdefault(match[1].lower(), _unescape((match[2] or "").strip("\"'")))
        return attributes


def _unescape(text: str) -> str:
    # Python reads no number of thousands of digits; eight are enough for any character.
    return unescape(_NUMBER.sub(r"&#\1", text))


def tokenize(source: str, *, xml: bool = False) -> Iterator[Token]:
    """The tokens of a source; a tag without an end is text."""
    start = 0  # of the text that no token has yet
    position = source.find("<")
    while position >= 0:
        token = _token(source, position, xml)
        if token is None:
            position = source.find("<", position + 1)
            continue
        if start < position:
            yield Token("text", source[start:position])
        start = position
        if not token.source:
            break
        yield token
        start += len(token.source)
        if token.kind == "open" and not xml and (token.name in RAW or token.name == "title"):
            # No tag but the end is in it.
            end = re.compile(rf"</{token.name}(?=[\s/>])", re.IGNORECASE).search(source, start)
            raw = source[start : end.start()] if end else source[start:]
            if raw:
                yield Token("text" if token.name == "title" else "other", raw)
            start += len(raw)
        position = source.find("<", start)
    if start < len(source):
        yield Token("text", source[start:])


def _token(source: str, position: int, xml: bool) -> Token | None:
    """The token that a ``<`` begins; an empty one if the rest of the source is text."""
    other = (_XML_OTHER if xml else _HTML_OTHER).match(source, position)
    if other is not None:
        is_text = xml and other[0].startswith("<![CDATA[") and other[0].endswith("]]>")
        return Token("text" if is_text else "other", other[0])
    match = (_XML_NAME if xml else _NAME).match(source, position)
    if match is None:
        return None
    end_match = _TAG_END.match(source, match.end())
    if end_match is None:
        return Token("text", "")
    name = match[1] if xml else match[1].lower()
    tag = source[position : end_match.end()]
    if source.startswith("</", position):
        return Token("close", tag, name)
    void = tag.endswith("/>") if xml else name in _VOID
    return Token("void" if void else "open", tag, name)


KEPT = RAW | {"code", "kbd", "math", "noscript", "pre", "samp", "svg", "template", "var"}
_BLOCKS = """
address article aside base blockquote body br button caption center col colgroup dd details dialog
dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header
hgroup hr html label legend li link main menu meta nav ol optgroup option p pre search section
select summary table tbody td tfoot th thead title tr ul
"""
_DEEPEST = 50
"""Nested elements in a block; a deeper element ends the block."""


@dataclass(frozen=True)
class Rules:
    """Elements that are not translated, end a block (``splitting``), or never do (``inline``).

    With ``outline``, elements that never stand beside text end a block, too.
    """

    xml: bool = False
    kept: Collection[str] = KEPT
    splitting: Collection[str] = frozenset(_BLOCKS.split())
    outline: bool = False
    inline: Collection[str] = ()


@dataclass(eq=False)
class _Element:
    """An open element; it is ``broken`` if a block ends at it or in it."""

    name: str
    index: int
    translated: bool
    level: int
    broken: bool


@dataclass(frozen=True)
class Block:
    """A text to translate, and the function that writes its translation as source."""

    source: str
    text: MarkedText
    write: Callable[[MarkedText], str]


def parse(source: str, rules: Rules) -> list[str | Block]:
    """The blocks of a source, and the source between them."""
    tokens = list(tokenize(source, xml=rules.xml))
    return list(_blocks(tokens, _Pairing(tokens, rules).ends))


def written(parts: Sequence[str | Block], translations: Iterator[MarkedText]) -> str:
    """The source with translated blocks; a translation equal to its text changes nothing."""

    def source(part: str | Block) -> str:
        if isinstance(part, str):
            return part
        text = next(translations)
        return part.source if text == part.text else part.write(text)

    return "".join(map(source, parts))


class _Pairing:
    """Finds the tokens of blocks; ``ends`` has the index of the end tag of each, or its own."""

    def __init__(self, tokens: Sequence[Token], rules: Rules) -> None:
        self.ends: dict[int, int] = {}
        self._tokens = tokens
        self._rules = rules
        self._outline = _structure(tokens) if rules.outline else set()
        self._open: list[_Element] = []
        self._names: Counter[str] = Counter()
        self._open_kept = 0
        for index, token in enumerate(tokens):
            if token.kind == "open":
                self._start(index, token)
            elif token.kind == "close":
                self._end(index, token)
            elif token.kind == "void" and self._splits(token.name):
                self._break()
            elif self._translated:
                self.ends[index] = index

    @property
    def _translated(self) -> bool:
        return not self._open or self._open[-1].translated

    def _splits(self, name: str) -> bool:
        rules = self._rules
        return name not in rules.inline and (name in rules.splitting or name in self._outline)

    def _break(self) -> None:
        for element in reversed(self._open):
            # The elements around a broken one are broken.
            if element.broken:
                break
            element.broken = True

    def _start(self, index: int, token: Token) -> None:
        translated = self._is_translated(token)
        level = self._open[-1].level + 1 if self._open and not self._open[-1].broken else 0
        broken = self._splits(token.name) or level > _DEEPEST
        if broken or (translated and not self._translated):
            self._break()
        self._open.append(_Element(token.name, index, translated, level, broken))
        self._names[token.name] += 1
        self._open_kept += token.name in self._rules.kept

    def _is_translated(self, token: Token) -> bool:
        if token.name in self._rules.kept:
            return False
        translated = self._translated
        source = token.source.lower()
        if not self._rules.xml and ("class" in source or "translate" in source):
            attributes = token.attributes
            asked = attributes.get("translate")
            if asked is not None and asked.lower() in ("", "yes", "no"):
                # Within an element that has no text, such as a script, nothing is translated.
                return asked.lower() != "no" and not self._open_kept
            if "notranslate" in attributes.get("class", "").split():
                return False
        return translated

    def _end(self, index: int, token: Token) -> None:
        if not self._names[token.name]:
            self._break()
            return
        unclosed = self._open[-1].name != token.name
        while True:
            element = self._open.pop()
            self._names[element.name] -= 1
            self._open_kept -= element.name in self._rules.kept
            if element.name == token.name:
                break
        if unclosed or element.broken:
            element.broken = True
            self._break()
        elif element.translated or self._translated:
            self.ends[element.index] = index
            self.ends[index] = index
            inside = range(element.index + 1, index)
            text = "".join(
                self._tokens[number].text
                for number in inside
                if self._tokens[number].kind == "text"
            )
            if token.name == "sup" and not any(map(str.isalpha, text)):
                # A reference or an exponent is kept: otherwise it joins the word before it.
                for number in (*inside, index):
                    self.ends.pop(number, None)


def _blocks(tokens: Sequence[Token], ends: dict[int, int]) -> Iterator[str | Block]:
    write = partial(write_tagged, escape=partial(escape, quote=False))
    spans: list[Span] = []
    marks: list[Mark] = []
    first = index = 0
    while index <= len(tokens):
        if index not in ends:
            source = "".join(token.source for token in tokens[first:index])
            letters = any(not span.keep and any(map(str.isalpha, span.text)) for span in spans)
            yield Block(source, tuple(spans), write) if letters else source
            yield tokens[index].source if index < len(tokens) else ""
            first = index + 1
            spans = []
        elif tokens[index].kind == "text":
            spans.append(Span(tokens[index].text, tuple(marks)))
        elif tokens[index].kind == "close":
            marks.pop()
        elif tokens[index].kind == "open" and index + 1 in ends and ends[index] > index + 1:
            marks.append(Mark((tokens[index].source, tokens[ends[index]].source)))
        else:
            source = "".join(token.source for token in tokens[index : ends[index] + 1])
            spans.append(Span(source, tuple(marks), keep=True))
            index = ends[index]
        index += 1


def _structure(tokens: Sequence[Token]) -> set[str]:
    """Names of the elements that never stand beside text."""
    children: defaultdict[int, set[str]] = defaultdict(set)
    with_text: set[int] = set()
    parents = [-1]
    for index, token in enumerate(tokens):
        if token.kind == "text" and token.source.strip():
            with_text.add(parents[-1])
        elif token.kind in ("open", "void"):
            children[parents[-1]].add(token.name)
        if token.kind == "open":
            parents.append(index)
        elif token.kind == "close" and len(parents) > 1:
            parents.pop()
    beside = set().union(*(children[parent] for parent in with_text))
    return set().union(*children.values()) - beside
