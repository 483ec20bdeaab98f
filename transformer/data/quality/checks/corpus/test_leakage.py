"""Sentences of validation and test text that are in the training text as well.

Case, punctuation and spaces are ignored. Stores hashes, of the held-out text only.
"""

from collections.abc import Iterable, Iterator, Mapping

from transformer.data.corpora.resolve import Split
from transformer.data.quality.base import Check, Example, Finding
from transformer.data.quality.pair import SIDES, NumberedPair, bare
from transformer.data.quality.texts import numbered


def _hashes(pair: NumberedPair) -> tuple[int, int, int] | None:
    """Return hashes of pair, source and target; None if a side has no letter or digit.

    A pair with its sides swapped, as in the other direction, has the same hash.
    """
    source, target = map(bare, pair.texts)
    if not source or not target:
        return None
    return hash(tuple(sorted((source, target)))), hash(source), hash(target)


class Leaks(Check):
    """Looks for held-out text in training text; the findings belong to the held-out splits."""

    names = ("leak", "leak_source", "leak_target")

    def __init__(self, held_out: Mapping[str, Split], max_examples: int) -> None:
        """Read the held-out text.

        Args:
            held_out: the held-out splits by name.
            max_examples: examples of each finding, at most.

        Raises:
            InputError: a text cannot be read.
        """
        super().__init__("train", max_examples)
        self.training_text = "the training text"
        """The text that is being seen, in words."""
        self._pairs = {
            name: [(pair.line, _hashes(pair)) for pair in numbered(split)]
            for name, split in held_out.items()
        }
        every = (hashes for pairs in self._pairs.values() for _, hashes in pairs)
        self._held_out = [set(hashes) for hashes in zip(*filter(None, every), strict=True)]
        self._locations: dict[str, dict[int, str]] = {name: {} for name in self.names}

    def see(self, pair: NumberedPair) -> None:
        """Note which held-out text a training pair contains."""
        for name, value in self._leaks(pair):
            self._locations[name].setdefault(value, f"{self.training_text}, line {pair.line}")

    def findings(self) -> Iterable[Finding]:
        """Return pairs, sources and targets that leaked, for each held-out split."""
        for split, pairs in self._pairs.items():
            for index, name in enumerate(self.names):
                found = self._locations[name]
                leaked = [
                    Example(line, (None, *SIDES)[index], f"is in {found[hashes[index]]}")
                    for line, hashes in pairs
                    if hashes is not None and hashes[index] in found
                ]
                examples = tuple(leaked[: self.max_examples])
                yield Finding(name, split, len(leaked), len(pairs), examples)

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return which held-out text a training pair contains: "leak" is both sides."""
        return [name for name, _ in self._leaks(pair)]

    def _leaks(self, pair: NumberedPair) -> Iterator[tuple[str, int]]:
        """Yield the name and the hash of what a training pair shares with held-out text."""
        hashes = _hashes(pair)
        if hashes is not None:
            for name, value, held_out in zip(self.names, hashes, self._held_out, strict=False):
                if value in held_out:
                    yield name, value
