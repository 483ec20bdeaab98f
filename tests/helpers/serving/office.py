"""Documents of Word and LibreOffice, built in code, and what can be done to their texts."""

import io
import zipfile
from collections.abc import Callable, Mapping

from lxml import etree

from transformer.serving.formats.tag_projection import MarkedText

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_ODF = "urn:oasis:names:tc:opendocument:xmlns"
IMAGE = bytes(range(256)) * 9


def zipped(entries: Mapping[str, bytes | str]) -> bytes:
    """A zip with the entries in their order."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return written.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    """The entries; XML in its canonical form."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        entries = {name: archive.read(name) for name in archive.namelist()}
    return {
        name: etree.tostring(etree.fromstring(entry), method="c14n")
        if name[-3:] == "xml"
        else entry
        for name, entry in entries.items()
    }


def docx(body: str, header: str = "") -> bytes:
    """A document with the XML of its body and of its header; ``w:`` is bound."""
    types = (
        f'<Types xmlns="{_TYPES}">'
        f'<Override PartName="/word/document.xml" ContentType="{_WORD}.document.main+xml"/>'
        f'<Override PartName="/word/header1.xml" ContentType="{_WORD}.header+xml"/></Types>'
    )
    return zipped(
        {
            "[Content_Types].xml": types,
            "word/document.xml": (
                f'<w:document xmlns:w="{W}" xmlns:v="urn:v"><w:body>{body}</w:body></w:document>'
            ),
            "word/header1.xml": f'<w:hdr xmlns:w="{W}">{header}</w:hdr>',
            "word/media/image1.png": IMAGE,
        }
    )


def odt(body: str, header: str = "") -> bytes:
    """A document with the XML of its body and of its header; ``text:`` is bound."""
    spaces = " ".join(
        f'xmlns:{prefix}="{_ODF}:{prefix}:1.0"' for prefix in ("office", "text", "style", "table")
    )
    return zipped(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document-content {spaces}>{body}</office:document-content>",
            "styles.xml": f"<office:document-styles {spaces}>{header}</office:document-styles>",
            "Pictures/one.png": IMAGE,
        }
    )


def changed(text: MarkedText, change: Callable[[str], str]) -> MarkedText:
    """The spans with another text."""
    return tuple(type(span)(change(span.text), span.marks, span.keep) for span in text)
