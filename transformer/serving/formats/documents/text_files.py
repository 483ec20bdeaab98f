"""Plain text and HTML in UTF-8; a byte order mark and line ends stay.

A line of plain text is a text, or what tabs part in it.
"""

import codecs
import re
from collections.abc import Sequence

from transformer.common.errors import InputError
from transformer.serving.formats.blocks import Rules, parse, written
from transformer.serving.formats.spans import MarkedText, Span


def decode_utf8(data: bytes) -> tuple[bytes, str]:
    """The byte order mark of a file, or nothing, and its text.

    Raises:
        InputError: It is not UTF-8.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        return mark, data[len(mark) :].decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"the file is not UTF-8 (byte {error.start + len(mark)}); convert it to UTF-8"
        ) from error


class TextFile:
    """A text whose parts can be replaced."""

    def __init__(self, data: bytes) -> None:
        self._mark, text = decode_utf8(data)
        self._parts = re.split(r"([\r\n\t]+)", text)
        self._filled = [n for n, part in enumerate(self._parts) if any(map(str.isalpha, part))]
        self.texts: list[MarkedText] = [(Span(self._parts[n]),) for n in self._filled]

    def write(self, translations: Sequence[MarkedText]) -> bytes:
        """The file with translations of its parts."""
        parts = list(self._parts)
        for number, translation in zip(self._filled, translations, strict=True):
            parts[number] = "".join(span.text for span in translation)
        return self._mark + "".join(parts).encode()


class HtmlFile:
    """A page whose texts can be replaced."""

    def __init__(self, data: bytes) -> None:
        self._mark, source = decode_utf8(data)
        self._parts = parse(source, Rules())
        self.texts: list[MarkedText] = [
            part.text for part in self._parts if not isinstance(part, str)
        ]

    def write(self, translations: Sequence[MarkedText]) -> bytes:
        """The page with translations of its texts."""
        return self._mark + written(self._parts, iter(translations)).encode()
