"""The choices that make a derivation: which rule, which value, which word.

It knows what the options weigh, not what they mean.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from scripts.pocket.lexical_entry import Candidates, Entry
from scripts.pocket.rule import Option, Rule


class Choice:
    """Chooses at random; the same seed chooses the same on every platform.

    Only ``random.Random.random`` is used: its sequence is what Python promises to keep. Of
    words that are equally likely it draws three and takes the one used least, so that rare
    words do not stay rare.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random
        self._used: Counter[str] = Counter()

    def rule(self, rules: Sequence[Rule]) -> Rule:
        """A rule by its weight."""
        return rules[self._index([rule.weight for rule in rules])]

    def value(self, options: Sequence[Option]) -> str:
        """A value by its weight."""
        return options[self._index([option.weight for option in options])].value

    def entry(self, candidates: Candidates) -> Entry:
        """A word by its weight and its use so far."""
        entry, *others = (self._draw(candidates) for _ in range(3))
        for other in others:
            if entry.weight == other.weight and self._used[other.lemma] < self._used[entry.lemma]:
                entry = other
        self._used[entry.lemma] += 1
        return entry

    def includes(self, slot: str, chance: float) -> bool:
        """Whether a slot that may be left out is there, with the given chance."""
        return chance == 1 or self._random() < chance

    def _index(self, weights: Sequence[float]) -> int:
        rest = self._random() * sum(weights)
        for index, weight in enumerate(weights):
            rest -= weight
            if rest < 0:
                return index
        return len(weights) - 1

    def _draw(self, candidates: Candidates) -> Entry:
        index = bisect_right(candidates.sums, self._random() * candidates.sums[-1])
        return candidates.entries[min(index, len(candidates.entries) - 1)]
