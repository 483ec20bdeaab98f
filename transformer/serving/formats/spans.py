"""Text with marks around its parts, whatever the marks are.

It does not know HTML, documents or translation.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Mark:
    """Something around a part of a text, such as a tag of HTML or the formatting of a document.

    Two marks are never equal, even if their payloads are: a mark is around one stretch of text.

    Attributes:
        payload: Of the reader that made it, which alone knows what it is.
    """

    payload: Any


@dataclass(frozen=True)
class Span:
    """A stretch of text with one set of marks.

    A thing without text (an image, a line break, an empty element) is a span with the text "" whose
    last mark is the thing.

    Attributes:
        text: May be empty.
        marks: Around it, the outermost first.
        keep: Whether the text must not be translated.
    """

    text: str
    marks: tuple[Mark, ...] = ()
    keep: bool = False


MarkedText = tuple[Span, ...]
"""The spans of one paragraph, cell or subtitle; the joined texts are translated.

The spans of a mark are neighbours, and marks nest.
"""
