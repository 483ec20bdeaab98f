"""Pairs that occur twice, and texts that occur with several translations.

Knows 64-bit hashes only, 32 bytes of memory a pair: among ten million pairs the chance of a single
false match is three in a million. Does not know the other splits.
"""

from array import array
from collections.abc import Iterable
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from transformer.data.quality.base import Check, Example, Finding
from transformer.data.quality.pair import NumberedPair


class Repeats(Check):
    """Duplicates, exact to the letter; and, for information, several translations of one text."""

    names: ClassVar[tuple[str, ...]] = ("duplicate", "several_targets", "several_sources")
    whole: ClassVar[bool] = True

    def __init__(self, split: str, most: int) -> None:
        """Begin to collect.

        Args:
            split: that the pairs are of.
            most: examples to keep.
        """
        self._split, self._most = split, most
        self._lines = array("q")
        self._hashes = (array("q"), array("q"), array("q"))
        self._kept: set[int] = set()

    def see(self, pair: NumberedPair) -> None:
        """Keep the hashes of the pair and of its sides."""
        self._lines.append(pair.line)
        for kept, value in zip(self._hashes, _hashes(pair), strict=True):
            kept.append(value)

    def findings(self) -> Iterable[Finding]:
        """Return duplicates, then sources of several targets, then targets of several sources."""
        lines = np.frombuffer(self._lines, dtype=np.int64)
        pairs, sources, targets = (np.frombuffer(a, dtype=np.int64) for a in self._hashes)
        first = _first_places(pairs)
        repeats = np.flatnonzero(first != np.arange(len(first)))
        earlier = lines[first[repeats[: self._most]]].tolist()
        yield self._finding("duplicate", lines, repeats, [f"as line {line}" for line in earlier])
        distinct = first == np.arange(len(first))
        for name, texts, what in (
            ("several_targets", sources, "source"),
            ("several_sources", targets, "target"),
        ):
            indices, before = _shared(texts, distinct)
            earlier = lines[before[: self._most]].tolist()
            said = [f"the {what} of line {line}, translated otherwise" for line in earlier]
            yield self._finding(name, lines, indices, said)

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return "duplicate" if an equal pair was kept: a rejected one leaves room for another."""
        return ("duplicate",) if _hashes(pair)[0] in self._kept else ()

    def keep(self, pair: NumberedPair) -> None:
        """Remember the pair, if it occurs once more."""
        value = _hashes(pair)[0]
        index = int(np.searchsorted(self._repeated, value))
        if index < len(self._repeated) and int(self._repeated[index]) == value:
            self._kept.add(value)

    @cached_property
    def _repeated(self) -> Int[np.ndarray, " repeat"]:
        """The hashes of pairs that occur more than once, in their order."""
        values, counts = np.unique(
            np.frombuffer(self._hashes[0], dtype=np.int64), return_counts=True
        )
        return values[counts > 1]

    def _finding(
        self,
        name: str,
        lines: Int[np.ndarray, " pair"],
        indices: Int[np.ndarray, " repeat"],
        said: list[str],
    ) -> Finding:
        shown = zip(lines[indices[: self._most]].tolist(), said, strict=True)
        examples = tuple(Example(line, None, words) for line, words in shown)
        return Finding(name, self._split, len(indices), len(lines), examples)


def _hashes(pair: NumberedPair) -> tuple[int, int, int]:
    """Return the hashes of a pair, of its source and of its target."""
    source, target = hash(pair.source), hash(pair.target)
    return hash((source, target)), source, target


def _first_places(hashes: Int[np.ndarray, " pair"]) -> Int[np.ndarray, " pair"]:
    """Return, of each value, the place where it occurs first."""
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    return first[inverse]


def _shared(
    texts: Int[np.ndarray, " pair"], distinct: Bool[np.ndarray, " pair"]
) -> tuple[Int[np.ndarray, " repeat"], Int[np.ndarray, " repeat"]]:
    """Return places of distinct pairs whose text an earlier one has, and of that earlier one."""
    indices = np.flatnonzero(distinct)
    first = _first_places(texts[indices])
    again = np.flatnonzero(first != np.arange(len(first)))
    return indices[again], indices[first[again]]
