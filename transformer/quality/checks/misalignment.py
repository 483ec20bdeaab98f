"""Stretches in which line i of one side is no translation of line i of the other.

A missing or extra line on one side shifts all later lines. A hidden Markov model over shifts
compares only lengths, with 12 bytes of memory per pair. Given the source length, the target length
has a normal distribution (after Gale and Church 1993, "A program for aligning sentences in
bilingual corpora"). The shift seldom changes. Viterbi finds the most probable shifts.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from transformer.data.corpora.split import NumberedPair
from transformer.quality.check import Check, Example, Finding

Lengths = Int[np.ndarray, " line"]
Lines = Float[np.ndarray, " line"]
"""Logarithms of lengths, standardized."""

# Lines that a text is shifted by, at most.
_MOST_SHIFT = 5
_SHIFTS = (0, *(sign * by for by in range(1, _MOST_SHIFT + 1) for sign in (1, -1)))
_UNRELATED = len(_SHIFTS)
# Lengths count against those around them: a text may change its style.
_NEIGHBORS = 512
# Lines that are taken together, for speed: a stretch begins and ends with a block.
_BLOCK = 4
# Nats that a change of the shift costs.
_CHANGE = 18.0
# Nats that one odd pair costs at most.
_MOST_COST = 3.5
# Below this correlation at the best shift, lengths are no evidence...
_TELLING = 0.3
# ... or, below this one in a text of at least so many lines, nothing is aligned.
_SHUFFLED = 0.15
_ENOUGH = 1000
# Fraction of the blocks that must be evidence: the rest of the text may be misaligned.
_MIN_FRACTION = 0.05
_CERTAIN = 0.95
# Standard deviations below which lines are all of one length, but for rounding.
_NO_SPREAD = 1e-3
# The longest length that is stored.
_LONGEST = 65_535
_NAME = "misaligned"


class Stretch(NamedTuple):
    """Lines [start, stop), from 0, in which the source of line i fits the target of i + shift."""

    start: int
    stop: int
    shift: int | None
    """None: the lengths fit under no shift."""
    aligned: float
    shifted: float | None
    """And if the shift is undone."""


class Misalignment(Check):
    """Collects lengths, then finds stretches that are shifted or do not correlate."""

    needs_all_pairs = True

    def __init__(self, split: str, max_examples: int) -> None:
        super().__init__(split, max_examples)
        self._lines = array("q")
        self._lengths = array("H"), array("H")

    def see(self, pair: NumberedPair) -> None:
        self._lines.append(pair.line)
        for lengths, text in zip(self._lengths, pair.texts, strict=True):
            lengths.append(min(len(text), _LONGEST))

    def findings(self) -> Iterable[Finding]:
        count = sum(stretch.stop - stretch.start for stretch in self._stretches)
        shown = self._stretches[: self.max_examples]
        examples = tuple(Example(self._lines[s.start], None, self._describe(s)) for s in shown)
        yield Finding(_NAME, self.split, count, len(self._lines), examples)

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        index = bisect_left(self._stretches, pair.line, key=self._last_line)
        inside = index < len(self._stretches) and (
            pair.line >= self._lines[self._stretches[index].start]
        )
        return (_NAME,) if inside else ()

    @cached_property
    def _stretches(self) -> list[Stretch]:
        return find_stretches(*(np.array(lengths, dtype=np.int64) for lengths in self._lengths))

    def _last_line(self, stretch: Stretch) -> int:
        return self._lines[stretch.stop - 1]

    def _describe(self, stretch: Stretch) -> str:
        to_line = f"to line {self._last_line(stretch)}: "
        aligned = f"{stretch.aligned:.2f}"
        if stretch.shift is None:
            return f"{to_line}the lengths correlate under no shift (correlation {aligned})"
        count = abs(stretch.shift)
        lines = f"{count} line" if count == 1 else f"{count} lines"
        direction = "below" if stretch.shift > 0 else "above"
        return (
            f"{to_line}the source fits the target {lines} {direction} "
            f"(correlation of lengths {stretch.shifted:.2f}; without the shift {aligned})"
        )


def find_stretches(source: Lengths, target: Lengths) -> list[Stretch]:
    """Return the stretches of some fifty lines and more in which two texts are not aligned."""
    x, y = _standard(source), _standard(target)
    likeness = _likeness(x, y)
    if likeness < _TELLING:
        varied = min(np.mean(x != 0), np.mean(y != 0)) > 0.5 if len(x) else False
        if varied and len(x) >= _ENOUGH and likeness < _SHUFFLED:
            return [Stretch(0, len(x), None, _correlation(x, y, 0), None)]
        return []
    every = range(len(_SHIFTS) + 1)
    blocks = np.arange(0, len(x), _BLOCK)
    costs = [np.add.reduceat(_cost(x, y, likeness, state), blocks) for state in every]
    states = _viterbi(np.stack(costs, axis=1))
    edges = [0, *(np.flatnonzero(np.diff(states)) + 1).tolist()]
    lines = [*(_BLOCK * edge for edge in edges), len(x)]
    stretches = []
    for start, stop, state in zip(lines, lines[1:], states[edges].tolist(), strict=False):
        if state != 0:
            part = x[start:stop], y[start:stop]
            shift = None if state == _UNRELATED else _SHIFTS[state]
            shifted = None if shift is None else _correlation(*part, shift)
            stretches.append(Stretch(start, stop, shift, _correlation(*part, 0), shifted))
    # Where lengths go together less than elsewhere in the text, but do, nothing is wrong.
    return [
        stretch for stretch in stretches if stretch.shift is not None or stretch.aligned < _TELLING
    ]


def _standard(lengths: Lengths) -> Lines:
    """Return logarithms of lengths, in standard deviations from the mean of their neighbors."""
    logs = np.log1p(lengths.astype(np.float32))
    for start in range(0, max(1, len(logs) - _NEIGHBORS // 2), _NEIGHBORS):
        # The last neighbors are up to half as many more, not a handful by themselves.
        last = start + _NEIGHBORS + _NEIGHBORS // 2 >= len(logs)
        block = logs[start:] if last else logs[start : start + _NEIGHBORS]
        block -= block.mean() if len(block) else 0
        spread = block.std() if len(block) else 0
        block /= spread if spread > _NO_SPREAD else np.inf
    return logs


def _likeness(x: Lines, y: Lines) -> float:
    """Return the correlation that aligned lines have: the median of the blocks above _TELLING."""
    starts = range(0, max(1, len(x) - _NEIGHBORS + 1), _NEIGHBORS)
    blocks = [(x[start : start + _NEIGHBORS], y[start : start + _NEIGHBORS]) for start in starts]
    correlations = np.array(
        [max(_correlation(*block, shift) for shift in _SHIFTS) for block in blocks]
    )
    telling = correlations[correlations >= _TELLING]
    enough = len(telling) >= _MIN_FRACTION * len(correlations)
    return min(float(np.median(telling if enough and len(telling) else correlations)), _CERTAIN)


def _correlation(x: Lines, y: Lines, shift: int) -> float:
    first, second = _overlap(x, y, shift)
    if len(first) < 3 or min(first.std(), second.std()) < _NO_SPREAD:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _overlap(
    x: Lines, y: Lines, shift: int
) -> tuple[Float[np.ndarray, " both"], Float[np.ndarray, " both"]]:
    lines = max(0, len(x) - abs(shift))
    return x[max(0, -shift) :][:lines], y[max(0, shift) :][:lines]


def _cost(x: Lines, y: Lines, likeness: float, state: int) -> Lines:
    """Return the negative log-likelihood of the target of each source, under a state."""
    if state == _UNRELATED:
        return np.minimum(y * y / 2, _MOST_COST)
    variance = 1 - likeness**2
    cost = np.full(len(x), _MOST_COST, dtype=np.float32)
    first, second = _overlap(x, y, _SHIFTS[state])
    start = max(0, -_SHIFTS[state])
    errors = (second - likeness * first) ** 2 / (2 * variance) + np.log(variance) / 2
    cost[start : start + len(errors)] = np.minimum(errors, _MOST_COST)
    return cost


def _viterbi(costs: Float[np.ndarray, "block state"]) -> Int[np.ndarray, " block"]:
    """Return the cheapest sequence of states; every change of the state costs the same."""
    best = np.zeros(costs.shape[1])
    changed = np.zeros(costs.shape, dtype=bool)
    come_from = np.zeros(len(costs), dtype=np.int64)
    for index, cost in enumerate(costs):
        come_from[index] = cheapest = best.argmin()
        change = best[cheapest] + (_CHANGE if index else 0)
        changed[index] = best > change
        best = np.minimum(best, change) + cost
    states = np.zeros(len(costs), dtype=np.int64)
    state = int(best.argmin())
    for index in range(len(costs) - 1, -1, -1):
        states[index] = state
        state = int(come_from[index]) if changed[index, state] else state
    return states
