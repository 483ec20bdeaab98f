"""A source whose file has been read: what a search gets in place of a text."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from transformer.data.tokenization.tags import UNTAGGED, SourceTags, TaggedText


@dataclass(frozen=True)
class Times:
    """The seconds of a sound that vectors stand for."""

    start: float
    end: float
    step: float
    """From one vector to the next."""
    speed: float = 1.0
    """That at which the model hears it."""


class ReadSource(TaggedText):
    """The name of a file, with its tags, its vectors and, of a sound, their times.

    It may also stand for what no file has: a part of a sound, or a changed picture.
    """

    vectors: Float[np.ndarray, "length channel"]
    times: Times | None
    windows: tuple[Times, ...]
    """Of a sound in filled windows: the times of each, which has as many vectors as another."""

    def __new__(
        cls,
        name: str,
        vectors: Any,
        times: Times | None = None,
        tags: SourceTags = UNTAGGED,
        windows: tuple[Times, ...] = (),
    ) -> "ReadSource":
        source = super().__new__(cls, name, tags)
        source.vectors = vectors
        source.times = times
        source.windows = windows
        if windows:
            source.times = replace(windows[0], end=windows[-1].end)
        return source

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.vectors, self.times, self.tags, self.windows

    def with_tags(self, tags: SourceTags) -> "ReadSource":
        return ReadSource(str(self), self.vectors, self.times, tags, self.windows)

    def part(self, start: int, end: int) -> "ReadSource":
        """The vectors from one index up to another."""
        times = self.times
        windows: tuple[Times, ...] = ()
        if self.windows:
            size = len(self.vectors) // len(self.windows)
            windows = self.windows[start // size : -(-end // size)]
        elif times is not None:
            first = times.start + start * times.step
            last = min(times.end, times.start + end * times.step)
            times = replace(times, start=first, end=max(first, last))
        return ReadSource(str(self), self.vectors[start:end], times, self.tags, windows)
