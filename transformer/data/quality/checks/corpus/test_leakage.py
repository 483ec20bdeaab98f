"""Sentences of validation and test text that stand in the training text as well.

Case, punctuation and spaces do not tell them apart. Remembers hashes of the held-out text, not
texts; of the training text nothing but where it was found. Does not know models or scores.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from transformer.data.quality.base import Check, Example, Finding
from transformer.data.quality.pair import NumberedPair, Side, bare

_LEAKS: tuple[tuple[str, Side | None], ...] = (
    ("leak", None),
    ("leak_source", "source"),
    ("leak_target", "target"),
)


def _hashes(pair: NumberedPair) -> tuple[int, int, int] | None:
    """Return hashes of pair, source and target; None where a side has no letter or digit.

    A pair is the same with its sides swapped, as another direction has them.
    """
    source, target = bare(pair.source), bare(pair.target)
    if not source or not target:
        return None
    return hash(tuple(sorted((source, target)))), hash(source), hash(target)


class HeldOutText:
    """The text that training must not have seen, of one split or several."""

    def __init__(self) -> None:
        self._lines: dict[str, list[tuple[int, tuple[int, int, int] | None]]] = {}
        self._known: tuple[set[int], set[int], set[int]] = (set(), set(), set())

    def add(self, split: str, pair: NumberedPair) -> None:
        """Remember the next pair of a split."""
        hashes = _hashes(pair)
        self._lines.setdefault(split, []).append((pair.line, hashes))
        if hashes is not None:
            for known, value in zip(self._known, hashes, strict=True):
                known.add(value)

    def known(self, pair: NumberedPair) -> Iterator[tuple[str, int]]:
        """Yield (name of the leak, hash) for what a training pair shares with this text."""
        hashes = _hashes(pair)
        if hashes is not None:
            for (name, _), value, known in zip(_LEAKS, hashes, self._known, strict=True):
                if value in known:
                    yield name, value

    def findings(
        self, found: Mapping[str, Mapping[int, int]], most: int, where: str
    ) -> Iterator[Finding]:
        """Return what of each split was found.

        Args:
            found: by the name of the leak, from hashes to lines of the training text.
            most: examples to keep.
            where: the training text, in words.
        """
        for split, lines in self._lines.items():
            for index, (name, side) in enumerate(_LEAKS):
                leaked = [
                    (line, found[name][hashes[index]])
                    for line, hashes in lines
                    if hashes is not None and hashes[index] in found[name]
                ]
                examples = tuple(
                    Example(line, side, f"stands in {where}, line {there}")
                    for line, there in leaked[:most]
                )
                yield Finding(name, split, len(leaked), len(lines), examples)


class Leaks(Check):
    """Looks for held-out text in the training text; the findings are of the held-out splits."""

    names: ClassVar[tuple[str, ...]] = tuple(name for name, _ in _LEAKS)
    whole: ClassVar[bool] = False

    def __init__(self, held_out: HeldOutText, most: int, where: str = "the training text") -> None:
        """Begin to look.

        Args:
            held_out: the text to look for.
            most: examples to keep.
            where: in what, in words.
        """
        self._held_out, self._most, self._where = held_out, most, where
        self._found: dict[str, dict[int, int]] = {name: {} for name in self.names}

    def see(self, pair: NumberedPair) -> None:
        """Note what of the pair is held out."""
        for name, value in self._held_out.known(pair):
            self._found[name].setdefault(value, pair.line)

    def findings(self) -> Iterable[Finding]:
        """Return pairs, sources and targets that leaked, for each held-out split."""
        yield from self._held_out.findings(self._found, self._most, self._where)

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return what of the pair is held out: "leak" (both sides) and the single sides."""
        return [name for name, _ in self._held_out.known(pair)]
