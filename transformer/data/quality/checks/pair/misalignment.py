"""Stretches in which line i of one side is no translation of line i of the other.

A line too many or too few on one side shifts all that follows. Remembers lengths alone, 12 bytes of
memory a pair; how they are compared, stretches.py knows.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from typing import ClassVar

import numpy as np

from transformer.data.quality.base import Check, Example, Finding
from transformer.data.quality.checks.pair.shift_model import Stretch, find_stretches
from transformer.data.quality.pair import NumberedPair

_LONGEST = 65_535


class Misalignment(Check):
    """Collects lengths, and then looks for stretches that are shifted or do not go together."""

    names: ClassVar[tuple[str, ...]] = ("misaligned",)
    whole: ClassVar[bool] = True

    def __init__(self, split: str, most: int) -> None:
        """Begin to collect.

        Args:
            split: that the pairs are of.
            most: examples to keep.
        """
        self._split, self._most = split, most
        self._lines = array("q")
        self._source, self._target = array("H"), array("H")

    def see(self, pair: NumberedPair) -> None:
        """Keep both lengths."""
        self._lines.append(pair.line)
        self._source.append(min(len(pair.source), _LONGEST))
        self._target.append(min(len(pair.target), _LONGEST))

    def findings(self) -> Iterable[Finding]:
        """Return the pairs in all stretches, and an example for each stretch."""
        count = sum(stretch.stop - stretch.start for stretch in self.stretches)
        examples = tuple(
            Example(self._lines[stretch.start], None, self._said(stretch))
            for stretch in self.stretches[: self._most]
        )
        yield Finding("misaligned", self._split, count, len(self._lines), examples)

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return "misaligned" for the pairs in a stretch."""
        index = bisect_left(self._ends, pair.line)
        inside = index < len(self._ends) and pair.line >= self._lines[self.stretches[index].start]
        return self.names if inside else ()

    @cached_property
    def stretches(self) -> list[Stretch]:
        """All stretches; places count the pairs that were seen."""
        lengths = (
            np.frombuffer(lengths, dtype=np.uint16) for lengths in (self._source, self._target)
        )
        return find_stretches(*(one.astype(np.int64) for one in lengths))

    @cached_property
    def _ends(self) -> list[int]:
        """The last line of each stretch."""
        return [self._lines[stretch.stop - 1] for stretch in self.stretches]

    def _said(self, stretch: Stretch) -> str:
        last = self._lines[stretch.stop - 1]
        until = f"to line {last}: "
        if stretch.shift is None:
            return (
                f"{until}the lengths of both sides do not go together, under no shift "
                f"(correlation {stretch.aligned:.2f})"
            )
        lines = f"{abs(stretch.shift)} line" + "s" * (abs(stretch.shift) > 1)
        return (
            f"{until}the source fits the target {lines} {'below' if stretch.shift > 0 else 'above'}"
            f" (correlation of lengths {stretch.shifted:.2f}; as it stands {stretch.aligned:.2f})"
        )
