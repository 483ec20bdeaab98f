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
"""The spans of one paragraph, cell or subtitle. The spans of a mark are neighbours; marks nest."""


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
    """A part of a translation.

    Attributes:
        marks: Of its partner in the source; None without a partner.
        start, end: Its partner, in characters of the translated text.
        kept: Whether it is a kept text or a thing without text.
    """

    text: str
    marks: tuple[Mark, ...] | None
    start: int
    end: int
    kept: bool = False


class PlainText:
    """The ``text`` to translate of a text with marks.

    ``spans`` are its spans with their starts, ``kept`` the untranslated ones with their offsets.
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
        """The cells of a stretch that stays as it is."""
        for index in range(max(0, bisect_right(self._starts, start) - 1), len(self.spans)):
            first, span = self.spans[index]
            if first >= end:
                break
            low, high = max(start, first), min(end, first + len(span.text))
            if low < high:
                yield Cell(span.text[low - first : high - first], span.marks, low, high)

    def marks(self, start: int, end: int) -> tuple[Mark, ...]:
        """The most marks around a part of the stretch."""
        return max((cell.marks or () for cell in self.copy(start, end)), key=len, default=())
