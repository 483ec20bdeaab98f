"""Pairs that occur twice, and texts that occur with several translations.

Stores only 64-bit hashes, 32 bytes of memory a pair: among ten million pairs the chance of a single
false match is three in a million.
"""

from array import array
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from jaxtyping import Int

from transformer.data.quality.base import Check, Example, Finding
from transformer.data.quality.pair import NumberedPair


class Repeats(Check):
    """Exact duplicates and, for information, several translations of one text."""

    names = ("duplicate", "several_targets", "several_sources")
    needs_all_pairs = True

    def __init__(self, split: str, max_examples: int) -> None:
        super().__init__(split, max_examples)
        self._lines = array("q")
        self._hashes = array("q"), array("q"), array("q")
        self._kept: set[int] = set()

    def see(self, pair: NumberedPair) -> None:
        """Store the hashes of the pair and of its sides."""
        self._lines.append(pair.line)
        for hashes, value in zip(self._hashes, (_hash(pair), *map(hash, pair.texts)), strict=True):
            hashes.append(value)

    def findings(self) -> Iterable[Finding]:
        """Return duplicates, then sources of several targets, then targets of several sources."""
        pairs, sources, targets = (np.frombuffer(a, dtype=np.int64) for a in self._hashes)
        first = _first_indices(pairs)
        is_first = first == np.arange(len(first))
        repeated, distinct = np.flatnonzero(~is_first), np.flatnonzero(is_first)
        yield self._finding("duplicate", repeated, first[repeated], "as line {}")
        for name, texts, side in (
            ("several_targets", sources, "source"),
            ("several_sources", targets, "target"),
        ):
            first = _first_indices(texts[distinct])
            again = np.flatnonzero(first != np.arange(len(first)))
            message = f"the {side} of line {{}}, translated otherwise"
            yield self._finding(name, distinct[again], distinct[first[again]], message)

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return "duplicate" if an equal pair was kept; after a rejected one, the next is kept."""
        return ("duplicate",) if _hash(pair) in self._kept else ()

    def keep(self, pair: NumberedPair) -> None:
        """Remember the pair if it occurs again."""
        value = _hash(pair)
        index = int(np.searchsorted(self._repeated, value))
        if index < len(self._repeated) and int(self._repeated[index]) == value:
            self._kept.add(value)

    @cached_property
    def _repeated(self) -> Int[np.ndarray, " repeat"]:
        """The sorted hashes of pairs that occur more than once."""
        hashes = np.frombuffer(self._hashes[0], dtype=np.int64)
        values, counts = np.unique(hashes, return_counts=True)
        return values[counts > 1]

    def _finding(
        self,
        name: str,
        indices: Int[np.ndarray, " repeat"],
        earlier: Int[np.ndarray, " repeat"],
        message: str,
    ) -> Finding:
        examples = tuple(
            Example(self._lines[index], None, message.format(self._lines[before]))
            for index, before in zip(indices[: self.max_examples], earlier, strict=False)
        )
        return Finding(name, self.split, len(indices), len(self._lines), examples)


def _hash(pair: NumberedPair) -> int:
    return hash((hash(pair.source), hash(pair.target)))


def _first_indices(hashes: Int[np.ndarray, " pair"]) -> Int[np.ndarray, " pair"]:
    """Return for each value the index of its first occurrence."""
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    return first[inverse]
