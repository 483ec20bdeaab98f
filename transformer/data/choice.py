"""The choices that make a derivation: which rule, which value, which word.

It knows what the options weigh, not what they mean.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from transformer.data.grammar_rule import Option, Rule
from transformer.data.lexical_entry import Candidates, Entry


@runtime_checkable
class Choice(Protocol):
    """Decides whatever a derivation leaves open."""

    def rule(self, rules: Sequence[Rule]) -> Rule:
        """One of the rules that apply."""

    def value(self, options: Sequence[Option]) -> str:
        """The value of a feature."""

    def entry(self, candidates: Candidates) -> Entry:
        """One of the words that fit."""

    def includes(self, slot: str, chance: float) -> bool:
        """Whether a slot that may be left out is there."""


class RandomChoice:
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
        return rules[self._place([rule.weight for rule in rules])]

    def value(self, options: Sequence[Option]) -> str:
        """A value by its weight."""
        return options[self._place([option.weight for option in options])].value

    def entry(self, candidates: Candidates) -> Entry:
        """A word by its weight and its use so far."""
        entry, *others = (self._draw(candidates) for _ in range(3))
        for other in others:
            if entry.weight == other.weight and self._used[other.lemma] < self._used[entry.lemma]:
                entry = other
        self._used[entry.lemma] += 1
        return entry

    def includes(self, slot: str, chance: float) -> bool:
        """With the given chance."""
        return chance == 1 or self._random() < chance

    def _place(self, weights: Sequence[float]) -> int:
        rest = self._random() * sum(weights)
        for place, weight in enumerate(weights):
            rest -= weight
            if rest < 0:
                return place
        return len(weights) - 1

    def _draw(self, candidates: Candidates) -> Entry:
        place = bisect_right(candidates.sums, self._random() * candidates.sums[-1])
        return candidates.entries[min(place, len(candidates.entries) - 1)]
