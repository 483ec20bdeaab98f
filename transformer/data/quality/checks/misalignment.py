"""Stretches in which line i of one side is no translation of line i of the other.

A missing or extra line on one side shifts all lines after it. Stores only lengths, 12 bytes of
memory a pair; shift_model.py compares them.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from transformer.data.quality.base import Check, Example, Finding
from transformer.data.quality.checks.shift_model import Stretch, find_stretches
from transformer.data.quality.pair import NumberedPair

_NAME = "misaligned"
_LONGEST = 65_535


class Misalignment(Check):
    """Collects lengths, then finds stretches that are shifted or do not correlate."""

    needs_all_pairs = True

    def __init__(self, split: str, max_examples: int) -> None:
        super().__init__(split, max_examples)
        self._lines = array("q")
        self._lengths = array("H"), array("H")

    def see(self, pair: NumberedPair) -> None:
        """Store both lengths."""
        self._lines.append(pair.line)
        for lengths, text in zip(self._lengths, pair.texts, strict=True):
            lengths.append(min(len(text), _LONGEST))

    def findings(self) -> Iterable[Finding]:
        """Return the number of pairs in all stretches, and an example for each stretch."""
        count = sum(stretch.stop - stretch.start for stretch in self._stretches)
        shown = self._stretches[: self.max_examples]
        examples = tuple(Example(self._lines[s.start], None, self._describe(s)) for s in shown)
        yield Finding(_NAME, self.split, count, len(self._lines), examples)

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return "misaligned" for the pairs in a stretch."""
        index = bisect_left(self._stretches, pair.line, key=self._last_line)
        inside = index < len(self._stretches) and (
            pair.line >= self._lines[self._stretches[index].start]
        )
        return (_NAME,) if inside else ()

    @cached_property
    def _stretches(self) -> list[Stretch]:
        """All stretches, as indices of the pairs that were seen."""
        source, target = (np.array(lengths, dtype=np.int64) for lengths in self._lengths)
        return find_stretches(source, target)

    def _last_line(self, stretch: Stretch) -> int:
        return self._lines[stretch.stop - 1]

    def _describe(self, stretch: Stretch) -> str:
        to_line = f"to line {self._last_line(stretch)}: "
        aligned = f"{stretch.aligned:.2f}"
        if stretch.shift is None:
            return f"{to_line}the lengths correlate under no shift (correlation {aligned})"
        lines = f"{abs(stretch.shift)} line" + "s" * (abs(stretch.shift) > 1)
        direction = "below" if stretch.shift > 0 else "above"
        return (
            f"{to_line}the source fits the target {lines} {direction} "
            f"(correlation of lengths {stretch.shifted:.2f}; without the shift {aligned})"
        )
