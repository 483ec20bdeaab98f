"""Text with marks around its parts, and the same text without marks."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple


@dataclass(frozen=True, eq=False)
class Mark:
    """Something around one stretch of text, such as a tag of HTML; two marks are never equal."""

    payload: Any


@dataclass(frozen=True)
class Span:
    """A stretch of text with the marks around it, the outermost first.

    A thing without text, such as an image, is a span with the text "" whose last mark is the thing.
    With ``keep``, the text must not be translated.
    """

    text: str
    marks: tuple[Mark, ...] = ()
    keep: bool = False


MarkedText = tuple[Span, ...]
"""The spans of one paragraph, cell or subtitle. The spans of a mark are neighbors; marks nest."""


def same_marks(before: Sequence[Mark], after: Sequence[Mark]) -> int:
    """The number of outermost marks that two spans share."""
    pairs = zip(before, after, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))


def write_tagged(spans: MarkedText, escape: Callable[[str], str] = str) -> str:
    """The text with marks whose payloads are a start and an end tag; kept text is not escaped."""
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
    """A part of a source, or of a translation with its partner in characters of the source.

    It is ``kept`` if it is a kept text or a thing without text; without a partner it has no marks.
    """

    text: str
    marks: tuple[Mark, ...] | None = None
    start: int = -1
    end: int = -1
    kept: bool = False


class PlainText:
    """The ``text`` to translate of a text with marks, its ``cells``, and the ``kept`` ones."""

    def __init__(self, spans: MarkedText) -> None:
        self.cells: list[Cell] = []
        self.kept: list[Cell] = []
        size = 0
        for span in spans:
            if span.keep or not span.text:
                self.kept.append(Cell(span.text, span.marks, size, size, kept=True))
            else:
                end = size + len(span.text)
                self.cells.append(Cell(span.text, span.marks, size, end))
                size = end
        self.text = "".join(cell.text for cell in self.cells)

    @property
    def needs_links(self) -> bool:
        """Whether marks or kept spans stand between words."""
        first = len(self.text) - len(self.text.lstrip())
        last = len(self.text.rstrip())
        stacks = {cell.marks for cell in self.cells if not cell.text.isspace()}
        return len(stacks) > 1 or any(first < cell.start < last for cell in self.kept)

    def copy(self, start: int, end: int) -> Iterator[Cell]:
        """The cells of a stretch that stays as it is."""
        first = bisect_right(self.cells, start, key=lambda cell: cell.start) - 1
        for index in range(max(0, first), len(self.cells)):
            cell = self.cells[index]
            if cell.start >= end:
                break
            low, high = max(start, cell.start), min(end, cell.end)
            if low < high:
                yield Cell(cell.text[low - cell.start : high - cell.start], cell.marks, low, high)

    def marks(self, start: int, end: int) -> tuple[Mark, ...]:
        """The most marks around a part of the stretch."""
        return max((cell.marks or () for cell in self.copy(start, end)), key=len, default=())
