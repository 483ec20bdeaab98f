"""Documents of Word (.docx) and LibreOffice (.odt): zips whose text is XML.

Only paragraphs change; the rest is copied. One walk over the XML (lxml) serves both formats, and
reaches text boxes and notes, which python-docx does not. Sources: ISO/IEC 29500, OpenDocument 1.3.
"""

import copy
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lxml import etree

from transformer.common.errors import InputError
from transformer.serving.formats.documents.paragraphs import Paragraph, read_paragraphs
from transformer.serving.formats.documents.runs import Element, Names
from transformer.serving.formats.spans import MarkedText

_MOST_ENTRIES = 10_000
_UNPACKED = 10
"""Limit of the unpacked bytes, as a multiple of that of the XML with text."""

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


class OfficeDocument:
    """A document whose texts can be replaced once; its XML has at most ``most_bytes``."""

    def __init__(self, data: bytes, most_bytes: int, extension: str) -> None:
        with _malformed(extension):
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            _check(self._zip.infolist(), most_bytes * _UNPACKED)
            names = self._zip.namelist()
            parts = _word_parts(self._zip) if extension == ".docx" else _open_parts(self._zip)
            parts = [name for name in parts if name in names]
            _check([self._zip.getinfo(name) for name in parts], most_bytes)
            self._trees = {name: _parsed(self._zip.read(name)) for name in parts}
            self._paragraphs: list[Paragraph] = []
            for tree in self._trees.values():
                root = tree.getroot()
                word = _word_names(etree.QName(root).namespace or "")
                known = word if extension == ".docx" else _OPEN_DOCUMENT
                self._paragraphs += read_paragraphs(root, known)
        self._extension, self._most_bytes = extension, most_bytes
        self.texts: list[MarkedText] = [text for one in self._paragraphs for text in one.texts]
        self._each(self.texts)

    def write(self, translations: Sequence[MarkedText]) -> bytes:
        for paragraph, texts in self._each(translations):
            paragraph.write(texts)
        written = io.BytesIO()
        with _malformed(self._extension), zipfile.ZipFile(written, "w") as archive:
            for info in self._zip.infolist():
                data = self._zip.read(info)
                if tree := self._trees.get(info.filename):
                    declared = {"xml_declaration": True, "standalone": tree.docinfo.standalone}
                    data = etree.tostring(tree, encoding="UTF-8", **declared)
                archive.writestr(copy.copy(info), data)
        return written.getvalue()

    def _each(self, translations: Sequence[MarkedText]) -> list[tuple[Paragraph, list[MarkedText]]]:
        """Each paragraph with its translations; InputError if the copies of runs grow too large."""
        rest = iter(translations)
        pairs = [(one, [next(rest) for _ in one.texts]) for one in self._paragraphs]
        with _malformed(self._extension):
            _require_at_most(self._most_bytes, sum(one.copied(texts) for one, texts in pairs))
        return pairs


@contextmanager
def _malformed(extension: str) -> Iterator[None]:
    try:
        yield
    except (
        *(zipfile.BadZipFile, zlib.error, struct.error, etree.LxmlError, EOFError, OSError),
        *(KeyError, ValueError, RuntimeError),
    ) as error:
        # That of a parser may quote the file.
        reason = " ".join(str(error).split())[:100]
        raise InputError(f"the file is no {extension} document: {reason}") from error


def _check(entries: Sequence[zipfile.ZipInfo], most_bytes: int) -> None:
    """Raise ValueError for large or unusual entries; zipfile reads no more than they declare."""
    _require_at_most(most_bytes, sum(entry.file_size for entry in entries))
    usual = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    names = {entry.filename for entry in entries if entry.compress_type in usual}
    if not 0 < len(entries) <= min(len(names), _MOST_ENTRIES):
        raise ValueError("it has no text, or too many or unusual entries")


def _require_at_most(most_bytes: int, size: int) -> None:
    if size > most_bytes:
        raise ValueError(f"it becomes more than {most_bytes} bytes")


def _word_parts(archive: zipfile.ZipFile) -> list[str]:
    types = _parsed(archive.read("[Content_Types].xml")).getroot()
    return [
        one.get("PartName", "").lstrip("/")
        for one in types.iterfind("{*}Override")
        if one.get("ContentType") in _WORD_PARTS
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
