"""Cuts a stream of lines into windows, and sentences into batches of similar length.

It does not know how windows and batches are processed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, TypeVar

from transformer.common.errors import InputError
from transformer.data.tokenization.tags import parse_tags, with_tags

Line = TypeVar("Line")

LONG_LINE = 10_000
"""A line with so many characters is a window by itself: the lines before it do not wait for it."""

FIRST_WINDOW = 8
"""Maximal lines of the first window: an early answer."""
LAST_WINDOW = 4096
"""Maximal lines of any window: full batches. Each may be twice as large as the one before."""


def make_windows(
    lines: Iterable[Line],
    ready: Callable[[], bool] | None,
    length: Callable[[Any], int] = len,
    limit: int | None = None,
) -> Iterator[list[Line]]:
    """Cut lines into windows: a window ends when it is full, or the next line is not ``ready``.

    ``length`` counts the characters of a line. With a ``limit`` of lengths, of whatever unit, a
    window also ends when its lines reach it.

    If reading fails, the earlier lines come first, then the error. The last window may be empty.
    """
    window: list[Line] = []
    size = FIRST_WINDOW
    total = 0
    try:
        for line in lines:
            is_long = length(line) >= (limit or LONG_LINE)
            if is_long and window:
                yield window
                window = []
            window.append(line)
            total += length(line)
            is_full = is_long or len(window) == size or (limit is not None and total >= limit)
            if is_full or (ready is not None and not ready()):
                yield window
                window = []
                total = 0
                size = min(2 * size, LAST_WINDOW)
    except Exception:
        yield window
        raise
    yield window


def without_end(line: str) -> str:
    """The line without its end, with its tags."""
    return with_tags(line.removesuffix("\n").removesuffix("\r"), parse_tags(line))


def pair_lengths(pairs: Iterable[tuple[Sized, Sized]]) -> list[int]:
    """Tokens of the longer side of each pair, the end of the sentence included."""
    return [max(map(len, pair)) + 1 for pair in pairs]


def overlong(pair: tuple[Sized, Sized], limits: tuple[int, int]) -> tuple[int, int] | None:
    """Subwords of a side that is too long with its end, and its limit; None if both sides fit.

    Vectors have positions of their own.
    """
    for side, limit in zip(pair, limits, strict=True):
        if getattr(side, "ndim", 1) == 1 and len(side) >= limit:
            return len(side), limit
    return None


def check_lengths(
    pairs: Iterable[tuple[Sized, Sized]],
    limits: tuple[int, int],
    purpose: str,
    *,
    first: int = 1,
) -> None:
    """Raise InputError if a pair is too long to ``purpose`` it; ``first`` numbers the pairs."""
    for number, pair in enumerate(pairs, start=first):
        found = overlong(pair, limits)
        if found is not None:
            length, limit = found
            key = "max_length" if limit == limits[1] else "max_source_length"
            raise InputError(
                f"pair {number} has a side of {length} subwords, and with the end of the sentence "
                f"model.{key}={limit} has room for {limit - 1}; leave it out to {purpose} the "
                "others"
            )


def bucket_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of sentences in batches of at most ``budget`` padded tokens, or of one sentence."""
    batch: list[int] = []
    # The longest first, so that an out-of-memory error shows at once.
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        # The first of a batch is its longest.
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
