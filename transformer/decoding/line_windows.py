"""Cuts a stream of lines into windows. It does not know how windows are processed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from transformer.data.tokenization.tags import parse_tags, with_tags

Line = TypeVar("Line")

LONG_LINE = 10_000
"""A line with so many characters is a window by itself: the lines before it do not wait for it."""

FIRST_WINDOW, LAST_WINDOW = 8, 4096
"""Maximal lines of the first and of any window; each may be twice as large as the one before: small
windows give an early answer, large windows full batches."""


def make_windows(
    lines: Iterable[Line], ready: Callable[[], bool] | None, length: Callable[[Any], int] = len
) -> Iterator[list[Line]]:
    """Cut lines into windows: a window ends when it is full, or the next line is not ``ready``.

    ``length`` counts the characters of a line.

    If reading fails, the earlier lines come first, then the error. The last window may be empty.
    """
    window: list[Line] = []
    size = FIRST_WINDOW
    try:
        for line in lines:
            is_long = length(line) >= LONG_LINE
            if is_long and window:
                yield window
                window = []
            window.append(line)
            if is_long or len(window) == size or (ready is not None and not ready()):
                yield window
                window = []
                size = min(2 * size, LAST_WINDOW)
    except Exception:
        yield window
        raise
    yield window


def without_end(line: str) -> str:
    """The line without its end, with its tags."""
    return with_tags(line.removesuffix("\n").removesuffix("\r"), parse_tags(line))
