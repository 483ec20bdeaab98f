"""Duplicates and held-out text, by 64-bit hashes (a false match in ten million pairs: 3e-6)."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np
from jaxtyping import Int

from transformer.data.corpora.split import NumberedPair, Split, numbered
from transformer.quality.check import SIDES, Check, Example, Finding, bare

Indices = Int[np.ndarray, " repeat"]


class Repeats(Check):
    """Exact duplicates, and several targets or sources of one text; takes 32 bytes a pair."""

    names = ("duplicate", "several_targets", "several_sources")
    needs_all_pairs = True

    def __init__(self, split: str, max_examples: int) -> None:
        super().__init__(split, max_examples)
        self._lines = array("q")
        self._hashes = array("q"), array("q"), array("q")
        self._kept: set[int] = set()

    def see(self, pair: NumberedPair) -> None:
        self._lines.append(pair.line)
        for hashes, value in zip(self._hashes, map(hash, (pair.texts, *pair.texts)), strict=True):
            hashes.append(value)

    def findings(self) -> Iterable[Finding]:
        """Return duplicates, then sources of several targets, then targets of several sources."""
        pairs, *sides = (np.frombuffer(hashes, dtype=np.int64) for hashes in self._hashes)
        every = np.arange(len(pairs))
        first = _first_indices(pairs)
        repeated, distinct = every[first != every], every[first == every]
        yield self._finding("duplicate", repeated, first[repeated], "as line {}")
        for name, side, other, texts in zip(self.names[1:], SIDES, SIDES[::-1], sides, strict=True):
            first = distinct[_first_indices(texts[distinct])]
            again = first != distinct
            message = f"the {side} of line {{}}, with another {other}"
            yield self._finding(name, distinct[again], first[again], message)

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return "duplicate" if an equal pair was kept; after a rejected one, the next is kept."""
        return self.names[:1] if hash(pair.texts) in self._kept else ()

    def keep(self, pair: NumberedPair) -> None:
        value = hash(pair.texts)
        if value in self._repeated:
            self._kept.add(value)

    @cached_property
    def _repeated(self) -> set[int]:
        values, counts = np.unique(np.frombuffer(self._hashes[0], np.int64), return_counts=True)
        return set(values[counts > 1].tolist())

    def _finding(self, name: str, indices: Indices, earlier: Indices, message: str) -> Finding:
        examples = (
            Example(self._lines[index], None, message.format(self._lines[before]))
            for index, before in zip(indices, earlier, strict=True)
        )
        shown = _distinct(examples, self.max_examples)
        return Finding(name, self.split, len(indices), len(self._lines), shown)


def _distinct(examples: Iterable[Example], count: int) -> tuple[Example, ...]:
    """Return the first examples, one a line, which may have several answers."""
    by_line: dict[int, Example] = {}
    for example in examples:
        if len(by_line) == count:
            break
        by_line.setdefault(example.line, example)
    return tuple(by_line.values())


def _first_indices(hashes: Int[np.ndarray, " pair"]) -> Int[np.ndarray, " pair"]:
    """Return for each value the index of its first occurrence."""
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    return first[inverse]


class Leaks(Check):
    """Looks for held-out text in training text, without case, punctuation and spaces."""

    names = ("leak", "leak_source", "leak_target")

    def __init__(self, held_out: Mapping[str, Split], max_examples: int) -> None:
        super().__init__("train", max_examples)
        self.training_text = "the training text"
        self._pairs = {
            name: [(pair.line, _bare_hashes(pair)) for pair in numbered(split)]
            for name, split in held_out.items()
        }
        every = (hashes for pairs in self._pairs.values() for _, hashes in pairs)
        self._held_out = [set(hashes) for hashes in zip(*filter(None, every), strict=True)]
        self._locations: dict[str, dict[int, str]] = {name: {} for name in self.names}

    def see(self, pair: NumberedPair) -> None:
        for name, value in self._leaks(pair):
            self._locations[name].setdefault(value, f"{self.training_text}, line {pair.line}")

    def findings(self) -> Iterable[Finding]:
        for split, pairs in self._pairs.items():
            for index, name in enumerate(self.names):
                locations = self._locations[name]
                leaked = [
                    Example(line, (None, *SIDES)[index], f"is in {locations[hashes[index]]}")
                    for line, hashes in pairs
                    if hashes is not None and hashes[index] in locations
                ]
                examples = _distinct(leaked, self.max_examples)
                yield Finding(name, split, len(leaked), len(pairs), examples)

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return which held-out text a training pair contains: "leak" is both sides."""
        return [name for name, _ in self._leaks(pair)]

    def _leaks(self, pair: NumberedPair) -> Iterator[tuple[str, int]]:
        hashes = _bare_hashes(pair) or ()
        for name, value, held_out in zip(self.names, hashes, self._held_out, strict=False):
            if value in held_out:
                yield name, value


def _bare_hashes(pair: NumberedPair) -> tuple[int, int, int] | None:
    """Return hashes of pair (in either order), source and target; None if one has no letter."""
    source, target = map(bare, pair.texts)
    if not source or not target:
        return None
    return hash(tuple(sorted((source, target)))), hash(source), hash(target)
