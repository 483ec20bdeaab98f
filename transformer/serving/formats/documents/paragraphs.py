"""Paragraphs of XML documents as marked texts, and back: runs of formatting are the marks.

Word processors cut a paragraph into many runs of equal formatting. Equal neighbours are one mark
here, and the formatting of most of the text is none: it is around all that has no other. Line
breaks and tabs end a text. What has no text (an image, a field, a bookmark) goes along with its
neighbour, and stays where it was at the ends of a text.

It does not know the names of a format.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from lxml import etree

from transformer.serving.formats.spans import Mark, MarkedText, Span

Element = Any
"""Of lxml, which has no types."""

_BLANKS = re.compile(r"[ \t\r\n]+")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


@dataclass(frozen=True)
class Names:
    """The elements of a format.

    Attributes:
        paragraphs: Hold text and have no other paragraph among their runs.
        run: Formatting around text.
        containers: Others that are around text, such as links.
        text: The only element that holds text; None: text is directly in paragraphs and runs, and
            several blanks count as one.
        properties: Describe the element that they are in.
        breaks: End a text.
        ignored: Left out of a paragraph that is translated.
        field: Marks begin and end of a field by the attribute ``field_type``.
    """

    paragraphs: frozenset[str]
    run: str
    containers: frozenset[str]
    text: str | None
    properties: frozenset[str]
    breaks: frozenset[str]
    ignored: frozenset[str]
    field: str | None = None
    field_type: str = ""


@dataclass(frozen=True)
class _Container:
    """A mark around text: an element without its content, and what tells equal ones."""

    shell: Element
    key: bytes
    is_run: bool


@dataclass(frozen=True)
class _Thing:
    """A mark without text: elements that stay as they are, in a run of their own if they were."""

    elements: list[Element]
    run: _Container | None
    ends_text: bool


class Paragraph:
    """A paragraph and its texts between breaks.

    Attributes:
        texts: To translate.
    """

    def __init__(self, element: Element, names: Names) -> None:
        self._element, self._names = element, names
        spans, self._base = _without_base(list(_spans(element, (), names)))
        self._fixed: list[MarkedText] = [()]
        self.texts: list[MarkedText] = []
        for before, text, behind in _texts(spans):
            if any(map(str.isalpha, "".join(span.text for span in text))):
                self._fixed[-1] += before
                self.texts.append(text)
                self._fixed.append(behind)
            else:
                self._fixed[-1] += before + text + behind

    def write(self, translations: Sequence[MarkedText]) -> None:
        """Put translations in place of the texts; nothing changes if they are equal."""
        if list(translations) == self.texts:
            return
        spans = list(self._fixed[0])
        for text, fixed in zip(translations, self._fixed[1:], strict=True):
            spans += text + fixed
        for child in list(self._element):
            if child.tag not in self._names.properties:
                self._element.remove(child)
        self._element.text = None
        open_marks: list[tuple[Mark, Element]] = []
        for span in spans:
            path = self._path(span)
            same = 0
            while same < min(len(path), len(open_marks)) and open_marks[same][0] is path[same]:
                same += 1
            del open_marks[same:]
            for mark in path[same:]:
                parent = open_marks[-1][1] if open_marks else self._element
                open_marks.append((mark, deepcopy(mark.payload.shell)))
                parent.append(open_marks[-1][1])
            self._append(open_marks[-1][1] if open_marks else self._element, span)

    def _path(self, span: Span) -> list[Mark]:
        """The containers around a span, the outermost first."""
        path = [mark for mark in span.marks if isinstance(mark.payload, _Container)]
        has_run = any(mark.payload.is_run for mark in path)
        if not span.text and self._names.text:
            # The thing brings its own run.
            return [mark for mark in path if not mark.payload.is_run]
        if span.text and self._base and not has_run and (self._names.text or not path):
            path.append(self._base)
        return path

    def _append(self, parent: Element, span: Span) -> None:
        """Put the text or the thing of a span at the end of its container."""
        if span.text:
            _append_text(parent, _NOT_XML.sub("", span.text), self._names.text)
        elif span.marks and isinstance(thing := span.marks[-1].payload, _Thing):
            if thing.run:
                run = deepcopy(thing.run.shell)
                parent.append(run)
                parent = run
            for element in thing.elements:
                element.tail = None
                parent.append(element)


def _append_text(parent: Element, text: str, holder: str | None) -> None:
    # The length of an element is counted each time.
    last = next(parent.iterchildren(reversed=True), None)
    if holder is not None:
        if last is None or last.tag != holder:
            last = etree.SubElement(parent, holder)
            last.set(_SPACE, "preserve")
        last.text = (last.text or "") + text
    elif last is not None:
        last.tail = (last.tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def _spans(parent: Element, marks: tuple[Mark, ...], names: Names) -> Iterator[Span]:
    """The spans of a paragraph or of a container in it."""
    before: Mark | None = None
    yield from _text(parent.text, marks, names)
    for group in _groups(parent, names):
        child = group[0]
        if len(group) == 1 and (child.tag == names.run or child.tag in names.containers):
            container = _container(child, names)
            if before is None or not container.is_run or before.payload.key != container.key:
                before = Mark(container)
            yield from _spans(child, (*marks, before), names)
        elif names.text is not None and child.tag == names.text:
            if child.text:
                yield Span(child.text, marks)
        elif child.tag not in names.properties and child.tag not in names.ignored:
            around = marks[-1].payload if names.text and marks else None
            run = around if around and around.is_run else None
            thing = _Thing(list(group), run, child.tag in names.breaks)
            yield Span("", (*marks, Mark(thing)))
            before = None
        tail = list(_text(group[-1].tail, marks, names))
        before = None if tail else before
        yield from tail


def _text(text: str | None, marks: tuple[Mark, ...], names: Names) -> Iterator[Span]:
    """Text directly in an element, in formats that have it; elsewhere it is indentation."""
    if text and names.text is None:
        yield Span(_BLANKS.sub(" ", text), marks)


def _groups(parent: Element, names: Names) -> Iterator[list[Element]]:
    """The children, each alone, but those of a field together; what is no whole field is apart."""
    group: list[Element] = []
    depth = 0
    for child in parent:
        kinds = (
            [one.get(names.field_type) for one in child.iter(names.field)] if names.field else []
        )
        depth = max(0, depth + kinds.count("begin") - kinds.count("end"))
        if depth or group or "begin" in kinds:
            group.append(child)
        else:
            yield [child]
        if group and not depth:
            yield group
            group = []
    for child in group:
        yield [child]


def _container(element: Element, names: Names) -> _Container:
    """An element without its content."""
    shell = etree.Element(element.tag, nsmap=element.nsmap)
    for name, value in element.attrib.items():
        # Numbers of editing sessions, by which Word cuts runs.
        if not etree.QName(name).localname.startswith("rsid"):
            shell.set(name, value)
    for child in element:
        if child.tag in names.properties:
            copied = deepcopy(child)
            copied.tail = None
            etree.strip_elements(copied, *names.ignored, with_tail=False)
            if len(copied) or copied.attrib:
                shell.append(copied)
    return _Container(
        shell, etree.tostring(shell, method="c14n", exclusive=True), element.tag == names.run
    )


def _without_base(spans: list[Span]) -> tuple[list[Span], Mark | None]:
    """The spans without the formatting of most of the text, and that formatting."""
    size: Counter[bytes | None] = Counter()
    runs: dict[bytes, Mark] = {}
    for span in spans:
        outer = span.marks[0] if span.marks else None
        if outer is None or (isinstance(outer.payload, _Container) and outer.payload.is_run):
            size[outer.payload.key if outer else None] += len(span.text)
            if outer:
                runs[outer.payload.key] = outer
    if not runs or size[None]:
        return spans, None
    base = runs[max(runs, key=lambda key: size[key])]
    return [
        replace(span, marks=span.marks[1:])
        if span.marks and getattr(span.marks[0].payload, "key", None) == base.payload.key
        else span
        for span in spans
    ], base


def _texts(spans: Sequence[Span]) -> Iterator[tuple[MarkedText, MarkedText, MarkedText]]:
    """The texts between breaks, each with the spans without text before and behind it."""
    texts: list[list[Span]] = [[]]
    for span in spans:
        texts[-1].append(span)
        thing = span.marks[-1].payload if span.marks else None
        if isinstance(thing, _Thing) and thing.ends_text:
            texts.append([])
    for text in texts:
        filled = [index for index, span in enumerate(text) if span.text.strip()]
        start, end = (filled[0], filled[-1] + 1) if filled else (0, 0)
        yield tuple(text[:start]), tuple(text[start:end]), tuple(text[end:])


def read_paragraphs(root: Element, names: Names) -> list[Paragraph]:
    """The paragraphs with text under an element, also those of tables, notes and text boxes."""
    paragraphs = (Paragraph(one, names) for one in root.iter(*names.paragraphs))
    return [one for one in paragraphs if one.texts]
