"""Cut a stream of lines into windows that are translated together.

Small windows give an early answer, large windows full batches.
"""

from collections.abc import Callable, Iterable, Iterator

from transformer.data.tokenization.tags import parse_tags, with_tags
from transformer.decoding.constraints.request import Request

FIRST_WINDOW, LAST_WINDOW = 8, 4096
"""Maximal lines of the first and of any window; each may be twice as large as the one before."""


def make_windows(
    lines: Iterable[str | Request], ready: Callable[[], bool] | None
) -> Iterator[list[Request]]:
    """Read windows: each ends when it is full, or when the next line is not ``ready``.

    If reading fails, the lines before come first, then the error. The last window may be empty.
    """
    window: list[Request] = []
    size = FIRST_WINDOW
    try:
        for line in lines:
            if isinstance(line, str):
                text = line.removesuffix("\n").removesuffix("\r")
                line = Request(with_tags(text, parse_tags(line)))
            window.append(line)
            if len(window) == size or (ready is not None and not ready()):
                yield window
                window = []
                size = min(2 * size, LAST_WINDOW)
    except Exception:
        yield window
        raise
    yield window
