"""Documents of Word (.docx) and of LibreOffice (.odt): zips whose text is XML.

Only paragraphs change; all else of the zip is copied. One walk over the XML (lxml) serves both
formats: it reaches all text, and knows no more of a layout than that it must stay. python-docx has
no text boxes and notes, and odfdo is for the other format; both would be rewritten at this level.

Word: ISO/IEC 29500. LibreOffice: OpenDocument 1.3.
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
"""Times ``most_bytes`` is what a file may become; its XML with text, once that."""

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


def _named(prefix: str, names: str) -> frozenset[str]:
    return frozenset(prefix + name for name in names.split())


def _word_names(namespace: str) -> Names:
    """The elements of Word, in the namespace that Word writes or in that of its strict form."""
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
        field_type=prefix + "fldCharType",
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
    """A document whose texts can be replaced, once.

    ``most_bytes`` are those of its XML with text; the whole may be ten times as large. Raises
    InputError if it is no such document, is encrypted, is too large or has a DTD.
    """

    def __init__(self, data: bytes, extension: str, most_bytes: int) -> None:
        with _malformed(extension):
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            _check(self._zip.infolist(), most_bytes)
            names = self._zip.namelist()
            parts = _word_parts(self._zip) if extension == ".docx" else _open_parts(self._zip)
            parts = [name for name in parts if name in names]
            if sum(self._zip.getinfo(name).file_size for name in parts) > most_bytes:
                raise InputError(f"the text of the file is more than {most_bytes} bytes of XML")
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
        """The document with translations of its texts."""
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
        """Each paragraph with its translations, which may copy no more than a file may have.

        A run is copied for each thing in it, so a small file could become any size.
        """
        rest = iter(translations)
        pairs = [(one, [next(rest) for _ in one.texts]) for one in self._paragraphs]
        if sum(one.copied(texts) for one, texts in pairs) > self._most_bytes:
            raise InputError(
                f"the formatting of the file becomes more than {self._most_bytes} bytes of XML"
            )
        return pairs


@contextmanager
def _malformed(extension: str) -> Iterator[None]:
    """Whatever a zip or XML of a stranger raises is an InputError."""
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
    """Check what the zip says of itself; zipfile reads no more of an entry than it says."""
    if len(entries) > _MOST_ENTRIES or sum(e.file_size for e in entries) > _UNPACKED * most_bytes:
        raise InputError(
            f"the file unpacks to more than {_MOST_ENTRIES} entries or "
            f"{_UNPACKED * most_bytes} bytes"
        )
    if any(e.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for e in entries):
        raise ValueError("it has an unusual compression")
    if len({e.filename for e in entries}) < len(entries):
        raise ValueError("it has two entries of one name")


def _word_parts(archive: zipfile.ZipFile) -> list[str]:
    """The names of the entries with text, which the list of types has."""
    types = _parsed(archive.read("[Content_Types].xml")).getroot()
    parts = [
        one.get("PartName", "").lstrip("/")
        for one in types.iterfind("{*}Override")
        if one.get("ContentType") in _WORD_PARTS
    ]
    if not parts:
        raise ValueError("it has no text of Word")
    return parts


def _open_parts(archive: zipfile.ZipFile) -> list[str]:
    if archive.read("mimetype").strip() != _OPEN_DOCUMENT_TYPE:
        raise ValueError("its mimetype is another")
    # Headers and footers are among the styles.
    return ["content.xml", "styles.xml"]


def _parsed(data: bytes) -> Element:
    """The tree of XML; nothing is expanded or fetched."""
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False
    )
    tree = etree.parse(io.BytesIO(data), parser)
    if tree.docinfo.doctype or tree.docinfo.internalDTD is not None:
        raise ValueError("it has a DTD")
    return tree
