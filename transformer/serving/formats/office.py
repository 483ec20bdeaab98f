"""Documents of Word (.docx) and LibreOffice (.odt): zips whose text is XML.

Only paragraphs change; the rest is copied. One walk over the XML (lxml) serves both formats, and
reaches text boxes and notes, which python-docx does not. Sources: ISO/IEC 29500, OpenDocument 1.3.

A paragraph becomes texts with marks: runs, whose neighbors with equal formatting are one mark, and
other elements around text. The formatting of most of a paragraph is no mark: text without marks
gets it. Line breaks and tabs end a text. An element without text, such as an image, moves with its
neighbor, and stays at the ends of a text.
"""

import copy
import io
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from lxml import etree

from transformer.common.errors import InputError
from transformer.serving.formats.tag_projection import Mark, MarkedText, Span, same_marks

Element = Any
"""Of lxml, which has no types."""

_BLANKS = re.compile(r"[ \t\r\n]+")

_DEEPEST = 50
"""Nested containers; a deeper one is an inline object, since a span names all around it."""


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
class InlineObject:
    """A mark without text: elements that stay unchanged, in their own run if they had one."""

    elements: list[Element]
    run: Container | None
    ends_text: bool


_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


def _named(prefix: str, names: str) -> frozenset[str]:
    return frozenset(prefix + name for name in names.split())


def _word_names(namespace: str) -> Names:
    """The elements of Word; its strict form has another namespace."""
    prefix = f"{{{namespace}}}"
    return Names(
        paragraphs=_named(prefix, "p"),
        run=prefix + "r",
        containers=_named(prefix, "hyperlink ins moveTo smartTag customXml sdt sdtContent dir bdo"),
        text=prefix + "t",
        properties=_named(prefix, "pPr rPr sdtPr sdtEndPr smartTagPr customXmlPr"),
        breaks=_named(prefix, "br cr tab ptab"),
        ignored=_named(prefix, "proofErr lastRenderedPageBreak softHyphen lang noProof"),
        field=prefix + "fldChar",
    )


_OPEN_DOCUMENT = Names(
    paragraphs=_named(_TEXT, "p h"),
    run=_TEXT + "span",
    containers=_named(_TEXT, "a meta"),
    text=None,
    properties=frozenset(),
    breaks=_named(_TEXT, "tab line-break"),
    ignored=_named(_TEXT, "soft-page-break"),
)

_WORD_PARTS = {
    f"application/vnd.openxmlformats-officedocument.wordprocessingml.{kind}+xml"
    for kind in ("document.main", "header", "footer", "footnotes", "endnotes", "comments")
}
_OPEN_DOCUMENT_TYPE = b"application/vnd.oasis.opendocument.text"

_MAX_ENTRIES = 10_000
_MAX_UNPACKED = 10
"""Limit of the unpacked bytes, as a multiple of that of the XML with text."""

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


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
            inline = InlineObject(list(group), run, child.tag in names.breaks)
            yield Span("", (*marks, Mark(inline)))
            before = None
        tail = list(_text(group[-1].tail, marks, names))
        before = None if tail else before
        yield from tail


def _text(text: str | None, marks: tuple[Mark, ...], names: Names) -> Iterator[Span]:
    """Text directly in an element; formats with elements for text have indentation there."""
    if text and names.text is None:
        yield Span(_BLANKS.sub(" ", text), marks)


def _groups(parent: Element, names: Names) -> Iterator[list[Element]]:
    """The children of each field together, the other children alone; a field may lack its end."""
    group: list[Element] = []
    depth = 0
    for child in parent:
        fields = child.iter(names.field) if names.field else ()
        kinds = [field.get(f"{names.field}Type") for field in fields]
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
            copied = copy.deepcopy(child)
            copied.tail = None
            etree.strip_elements(copied, *names.ignored, with_tail=False)
            if len(copied) or copied.attrib:
                shell.append(copied)
    key = etree.tostring(shell, method="c14n", exclusive=True)
    # 10 for each tag and each name of an attribute.
    size = sum(
        10 + sum(10 + len(value) for value in part.attrib.values()) + len(part.text or "")
        for part in shell.iter()
    )
    return Container(shell, key, size, element.tag == names.run)


def _namespaces(element: Element) -> dict[str | None, str]:
    """Prefixes of an element and its attributes alone; ``nsmap`` may have thousands of them."""
    namespace = etree.QName(element).namespace
    prefixes = {element.prefix: namespace} if namespace else {}
    for uri in {etree.QName(name).namespace for name in element.attrib} - {namespace, None}:
        name = element.xpath("name(@*[namespace-uri() = $uri])", uri=uri)
        prefixes[name.partition(":")[0]] = uri
    return prefixes


class Paragraph:
    """A paragraph and its texts between breaks."""

    def __init__(self, element: Element, names: Names) -> None:
        self._element = element
        self._names = names
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
        new.extend(child for child in list(self._element) if child.tag in self._names.properties)
        parents = [new]
        for span, same, opened in self._steps(translations):
            del parents[same + 1 :]
            for mark in opened:
                shell = copy.deepcopy(mark.payload.shell)
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
            inline = span.marks[-1].payload if span.marks and not span.text else None
            if isinstance(inline, InlineObject) and inline.run:
                size += inline.run.size
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
            # The object brings its own run.
            return [mark for mark in path if not mark.payload.is_run]
        if span.text and self._base and not has_run and (self._names.text or not path):
            path.append(self._base)
        return path

    def _append(self, parent: Element, span: Span) -> None:
        if span.text:
            _append_text(parent, _NOT_XML.sub("", span.text), self._names.text)
            return
        inline = span.marks[-1].payload if span.marks else None
        if isinstance(inline, InlineObject):
            if inline.run:
                run = copy.deepcopy(inline.run.shell)
                parent.append(run)
                parent = run
            for element in inline.elements:
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
        inline = span.marks[-1].payload if span.marks else None
        if isinstance(inline, InlineObject) and inline.ends_text:
            texts.append([])
    for text in texts:
        filled = [index for index, span in enumerate(text) if span.text.strip()]
        start, end = (filled[0], filled[-1] + 1) if filled else (0, 0)
        yield tuple(text[:start]), tuple(text[start:end]), tuple(text[end:])


def read_paragraphs(root: Element, names: Names) -> list[Paragraph]:
    """The paragraphs with text under an element, those in tables and text boxes included."""
    paragraphs = (
        Paragraph(element, names)
        for element in root.iter(*names.paragraphs)
        if any(not text.isspace() for text in element.itertext())
    )
    return [paragraph for paragraph in paragraphs if paragraph.texts]


class OfficeDocument:
    """A document whose texts can be replaced once; its XML has at most ``max_bytes``."""

    def __init__(self, data: bytes, max_bytes: int, extension: str) -> None:
        with _malformed(extension):
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            _check(self._zip.infolist(), max_bytes * _MAX_UNPACKED)
            entries = self._zip.namelist()
            parts = _word_parts(self._zip) if extension == ".docx" else _open_parts(self._zip)
            parts = [name for name in parts if name in entries]
            _check([self._zip.getinfo(name) for name in parts], max_bytes)
            self._trees = {name: _parsed(self._zip.read(name)) for name in parts}
            self._paragraphs: list[Paragraph] = []
            for tree in self._trees.values():
                root = tree.getroot()
                names = _OPEN_DOCUMENT
                if extension == ".docx":
                    names = _word_names(etree.QName(root).namespace or "")
                self._paragraphs += read_paragraphs(root, names)
        self._extension = extension
        self._max_bytes = max_bytes
        self.texts: list[MarkedText] = []
        for paragraph in self._paragraphs:
            self.texts += paragraph.texts
        self._pairs(self.texts)

    def write(self, translations: Sequence[MarkedText]) -> bytes:
        for paragraph, texts in self._pairs(translations):
            paragraph.write(texts)
        written = io.BytesIO()
        with _malformed(self._extension), zipfile.ZipFile(written, "w") as archive:
            for info in self._zip.infolist():
                data = self._zip.read(info)
                tree = self._trees.get(info.filename)
                if tree:
                    data = etree.tostring(
                        tree,
                        encoding="UTF-8",
                        xml_declaration=True,
                        standalone=tree.docinfo.standalone,
                    )
                archive.writestr(copy.copy(info), data)
        return written.getvalue()

    def _pairs(
        self, translations: Sequence[MarkedText]
    ) -> list[tuple[Paragraph, list[MarkedText]]]:
        """Each paragraph with its translations; InputError if the copies of runs grow too large."""
        rest = iter(translations)
        pairs = [
            (paragraph, [next(rest) for _ in paragraph.texts]) for paragraph in self._paragraphs
        ]
        with _malformed(self._extension):
            copied = sum(paragraph.copied(texts) for paragraph, texts in pairs)
            _require_at_most(self._max_bytes, copied)
        return pairs


@contextmanager
def _malformed(extension: str) -> Iterator[None]:
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        etree.LxmlError,
        EOFError,
        OSError,
        KeyError,
        ValueError,
        RuntimeError,
    ) as error:
        # The message of a parser may quote the file.
        reason = " ".join(str(error).split())[:100]
        raise InputError(f"the file is no {extension} document: {reason}") from error


def _check(entries: Sequence[zipfile.ZipInfo], max_bytes: int) -> None:
    """Raise ValueError for large or unusual entries; zipfile reads no more than they declare."""
    _require_at_most(max_bytes, sum(entry.file_size for entry in entries))
    usual = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    names = {entry.filename for entry in entries if entry.compress_type in usual}
    if not 0 < len(entries) <= min(len(names), _MAX_ENTRIES):
        raise ValueError("it has no text, or too many or unusual entries")


def _require_at_most(max_bytes: int, size: int) -> None:
    if size > max_bytes:
        raise ValueError(f"it becomes more than {max_bytes} bytes")


def _word_parts(archive: zipfile.ZipFile) -> list[str]:
    types = _parsed(archive.read("[Content_Types].xml")).getroot()
    return [
        part.get("PartName", "").lstrip("/")
        for part in types.iterfind("{*}Override")
        if part.get("ContentType") in _WORD_PARTS
    ]


def _open_parts(archive: zipfile.ZipFile) -> list[str]:
    # Headers and footers are among the styles.
    is_text = archive.read("mimetype").strip() == _OPEN_DOCUMENT_TYPE
    return ["content.xml", "styles.xml"] if is_text else []


def _parsed(data: bytes) -> Element:
    """The tree of XML without a DTD; nothing is expanded or fetched."""
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False
    )
    tree = etree.parse(io.BytesIO(data), parser)
    if tree.docinfo.doctype or tree.docinfo.internalDTD is not None:
        raise ValueError("it has a DTD")
    return tree
