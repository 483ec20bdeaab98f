"""Paragraphs of XML documents as marked texts, and back; their formatting is the marks.

The formatting of most of a paragraph is no mark: text without marks gets it. Line breaks and tabs
end a text. An element without text, such as an image, moves with its neighbor, and stays at the
ends of a text.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace

from lxml import etree

from transformer.serving.formats.documents.runs import Container, Element, Names, Thing, read_spans
from transformer.serving.formats.spans import Mark, MarkedText, Span, same_marks

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


class Paragraph:
    """A paragraph and its texts between breaks."""

    def __init__(self, element: Element, names: Names) -> None:
        self._element, self._names = element, names
        spans, self._base = _without_base(list(read_spans(element, (), names)))
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
        """Replace the texts by translations; equal translations change nothing."""
        if list(translations) == self.texts:
            return
        # Removing elements one by one takes quadratic time in lxml.
        new = etree.SubElement(self._element, self._element.tag)
        new.extend(one for one in list(self._element) if one.tag in self._names.properties)
        parents = [new]
        for span, same, opened in self._steps(translations):
            del parents[same + 1 :]
            for mark in opened:
                shell = deepcopy(mark.payload.shell)
                parents[-1].append(shell)
                parents.append(shell)
            self._append(parents[-1], span)
        del self._element[:-1]
        self._element.text = new.text
        self._element.extend(list(new))
        self._element.remove(new)

    def copied(self, translations: Sequence[MarkedText]) -> int:
        """The approximate bytes of formatting that ``write`` copies."""
        size = 0
        for span, _, opened in self._steps(translations):
            size += sum(mark.payload.size for mark in opened)
            thing = span.marks[-1].payload if span.marks and not span.text else None
            if isinstance(thing, Thing) and thing.run:
                size += thing.run.size
        return size

    def _steps(self, translations: Sequence[MarkedText]) -> Iterator[tuple[Span, int, list[Mark]]]:
        """Each span, the number of containers that continue, and the containers that begin."""
        spans = list(self._fixed[0])
        for text, fixed in zip(translations, self._fixed[1:], strict=True):
            spans += text + fixed
        before: list[Mark] = []
        for span in spans:
            path = self._path(span)
            same = same_marks(before, path)
            yield span, same, path[same:]
            before = path

    def _path(self, span: Span) -> list[Mark]:
        """The containers around a span, the outermost first."""
        path = [mark for mark in span.marks if isinstance(mark.payload, Container)]
        has_run = any(mark.payload.is_run for mark in path)
        if not span.text and self._names.text:
            # The thing brings its own run.
            return [mark for mark in path if not mark.payload.is_run]
        if span.text and self._base and not has_run and (self._names.text or not path):
            path.append(self._base)
        return path

    def _append(self, parent: Element, span: Span) -> None:
        if span.text:
            _append_text(parent, _NOT_XML.sub("", span.text), self._names.text)
        elif span.marks and isinstance(thing := span.marks[-1].payload, Thing):
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


def _without_base(spans: list[Span]) -> tuple[list[Span], Mark | None]:
    """The spans without the formatting of most of the text, and this formatting."""
    size: Counter[bytes | None] = Counter()
    runs: dict[bytes, Mark] = {}
    for span in spans:
        outer = span.marks[0] if span.marks else None
        if outer is None or (isinstance(outer.payload, Container) and outer.payload.is_run):
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
    """The texts between breaks, each with the spans without text before and after it."""
    texts: list[list[Span]] = [[]]
    for span in spans:
        texts[-1].append(span)
        thing = span.marks[-1].payload if span.marks else None
        if isinstance(thing, Thing) and thing.ends_text:
            texts.append([])
    for text in texts:
        filled = [index for index, span in enumerate(text) if span.text.strip()]
        start, end = (filled[0], filled[-1] + 1) if filled else (0, 0)
        yield tuple(text[:start]), tuple(text[start:end]), tuple(text[end:])


def read_paragraphs(root: Element, names: Names) -> list[Paragraph]:
    """The paragraphs with text under an element, those in tables and text boxes included."""
    paragraphs = (
        Paragraph(one, names)
        for one in root.iter(*names.paragraphs)
        if any(not text.isspace() for text in one.itertext())
    )
    return [one for one in paragraphs if one.texts]
