"""Plain text files: each line is a text; line ends and a byte order mark stay.

It knows UTF-8 alone.
"""

import codecs
from collections.abc import Sequence

from transformer.common.errors import InputError
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
    """A text whose lines can be replaced."""

    def __init__(self, data: bytes) -> None:
        self._mark, text = decode_utf8(data)
        self._lines = text.split("\n")
        self._filled = [n for n, line in enumerate(self._lines) if any(map(str.isalpha, line))]
        self.texts: list[MarkedText] = [(Span(self._lines[n]),) for n in self._filled]

    def write(self, translations: Sequence[MarkedText]) -> bytes:
        """The file with translations of its lines."""
        lines = list(self._lines)
        for number, translation in zip(self._filled, translations, strict=True):
            lines[number] = "".join(span.text for span in translation)
        return self._mark + "\n".join(lines).encode()
