"""The runs of a paragraph as spans; neighboring runs with equal formatting are one mark."""

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from lxml import etree

from transformer.serving.formats.spans import Mark, Span

Element = Any
"""Of lxml, which has no types."""

_BLANKS = re.compile(r"[ \t\r\n]+")

_DEEPEST = 50
"""Nested containers; a deeper container is a thing, since each span names all around it."""


@dataclass(frozen=True)
class Names:
    """The elements of a format.

    ``run`` is formatting around text, ``containers`` are other elements around it. ``text`` alone
    holds text; None: text is directly in paragraphs and runs, and several blanks count as one.
    ``breaks`` end a text, ``ignored`` elements are not written again, and ``field`` marks begin and
    end of a field, by the attribute ``fldCharType``.
    """

    paragraphs: frozenset[str]
    run: str
    containers: frozenset[str]
    text: str | None
    properties: frozenset[str]
    breaks: frozenset[str]
    ignored: frozenset[str]
    field: str | None = None


@dataclass(frozen=True)
class Container:
    """A mark around text: an element without its content; equal formatting has equal keys."""

    shell: Element
    key: bytes
    size: int
    is_run: bool


@dataclass(frozen=True)
class Thing:
    """A mark without text: elements that stay unchanged, in their own run if they had one."""

    elements: list[Element]
    run: Container | None
    ends_text: bool


def read_spans(parent: Element, marks: tuple[Mark, ...], names: Names) -> Iterator[Span]:
    """The spans of a paragraph or of a container in it."""
    before: Mark | None = None
    yield from _text(parent.text, marks, names)
    for group in _groups(parent, names):
        child = group[0]
        is_around_text = child.tag == names.run or child.tag in names.containers
        if len(group) == 1 and len(marks) < _DEEPEST and is_around_text:
            container = _container(child, names)
            if before is None or not container.is_run or before.payload.key != container.key:
                before = Mark(container)
            yield from read_spans(child, (*marks, before), names)
        elif names.text is not None and child.tag == names.text:
            if child.text:
                yield Span(child.text, marks)
        elif child.tag not in names.properties and child.tag not in names.ignored:
            around = marks[-1].payload if names.text and marks else None
            run = around if around and around.is_run else None
            thing = Thing(list(group), run, child.tag in names.breaks)
            yield Span("", (*marks, Mark(thing)))
            before = None
        tail = list(_text(group[-1].tail, marks, names))
        before = None if tail else before
        yield from tail


def _text(text: str | None, marks: tuple[Mark, ...], names: Names) -> Iterator[Span]:
    """Text directly in an element; in formats with elements of text it is indentation."""
    if text and names.text is None:
        yield Span(_BLANKS.sub(" ", text), marks)


def _groups(parent: Element, names: Names) -> Iterator[list[Element]]:
    """The children of each field together, the other children alone; a field may lack its end."""
    group: list[Element] = []
    depth = 0
    for child in parent:
        fields = child.iter(names.field) if names.field else ()
        kinds = [one.get(f"{names.field}Type") for one in fields]
        depth = max(0, depth + kinds.count("begin") - kinds.count("end"))
        group.append(child)
        if not depth:
            yield group
            group = []
    yield from ([child] for child in group)


def _container(element: Element, names: Names) -> Container:
    shell = etree.Element(element.tag, nsmap=_namespaces(element))
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
    key = etree.tostring(shell, method="c14n", exclusive=True)
    # 10 for each tag and each name of an attribute.
    size = sum(
        10 + sum(10 + len(value) for value in one.attrib.values()) + len(one.text or "")
        for one in shell.iter()
    )
    return Container(shell, key, size, element.tag == names.run)


def _namespaces(element: Element) -> dict[str | None, str]:
    """Prefixes of an element and its attributes alone; ``nsmap`` may have thousands of them."""
    own = etree.QName(element).namespace
    found = {element.prefix: own} if own else {}
    for uri in {etree.QName(name).namespace for name in element.attrib} - {own, None}:
        name = element.xpath("name(@*[namespace-uri() = $uri])", uri=uri)
        found[name.partition(":")[0]] = uri
    return found
