"""Text with marks around its parts, whatever the marks are, and the same text without them.

It does not know HTML, documents or translation.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, eq=False)
class Mark:
    """Something around a part of a text, such as a tag of HTML or the formatting of a document.

    Two marks are never equal: a mark is around one stretch of text. What ``payload`` is, only the
    reader that made it knows.
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


def same_marks(before: Sequence[Mark], after: Sequence[Mark]) -> int:
    """How many of the outermost marks of two spans are the same."""
    pairs = enumerate(zip(before, after, strict=False))
    shortest = min(len(before), len(after))
    return next((index for index, (one, other) in pairs if one is not other), shortest)


def write_tagged(spans: MarkedText, escape: Callable[[str], str] = str) -> str:
    """The text with its marks, whose payloads are a start and an end tag; kept text is verbatim."""
    written: list[str] = []
    around: tuple[Mark, ...] = ()
    for span in (*spans, Span("")):
        same = same_marks(around, span.marks)
        written += [mark.payload[1] for mark in reversed(around[same:])]
        written += [mark.payload[0] for mark in span.marks[same:]]
        written.append(span.text if span.keep else escape(span.text))
        around = span.marks
    return "".join(written)


class Cell(NamedTuple):
    """A part of a translation.

    Attributes:
        text: Of the translation.
        marks: Of the source; None for what has no partner in the source.
        start, end: Its partner, in characters of the text that was translated.
        kept: Whether it was not translated: a kept text, or a thing without text.
    """

    text: str
    marks: tuple[Mark, ...] | None
    start: int
    end: int
    kept: bool = False


class PlainText:
    """A text with marks without its marks: ``text`` is what is translated.

    ``spans`` are those of it, with their starts, ``kept`` those that are not translated, with their
    offsets in it.
    """

    def __init__(self, spans: MarkedText) -> None:
        self.spans: list[tuple[int, Span]] = []
        self.kept: list[tuple[int, Span]] = []
        texts, size = [], 0
        for span in spans:
            if span.keep or not span.text:
                self.kept.append((size, span))
                continue
            self.spans.append((size, span))
            texts.append(span.text)
            size += len(span.text)
        self.text = "".join(texts)
        self._starts = [start for start, _ in self.spans]

    @property
    def needs_links(self) -> bool:
        """Whether marks or kept spans stand between words."""
        first = len(self.text) - len(self.text.lstrip())
        last = len(self.text.rstrip())
        stacks = {span.marks for _, span in self.spans if not span.text.isspace()}
        return len(stacks) > 1 or any(first < offset < last for offset, _ in self.kept)

    def copy(self, start: int, end: int) -> Iterator[Cell]:
        """The cells of a stretch that is its own translation."""
        for index in range(max(0, bisect_right(self._starts, start) - 1), len(self.spans)):
            first, span = self.spans[index]
            if first >= end:
                break
            low, high = max(start, first), min(end, first + len(span.text))
            if low < high:
                yield Cell(span.text[low - first : high - first], span.marks, low, high)

    def marks(self, start: int, end: int) -> tuple[Mark, ...]:
        """The marks around a stretch; where these change, the most."""
        return max((cell.marks or () for cell in self.copy(start, end)), key=len, default=())
