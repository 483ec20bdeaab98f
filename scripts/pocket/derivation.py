"""Derivations of a synchronous grammar: one abstract tree for both languages.

A derivation applies rules that a `Choice` selects. It knows neither morphology nor word order.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scripts.pocket.lexicon import NONE, Candidates, Entry, Lexicon
from scripts.pocket.rule import Condition, Option, Reference, Rule, Slot


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


_NARROWED = ("number", "tense", "gender", "kind")
"""Features of which a leaf keeps the value that was asked for, not all values of the entry."""


class ImpossibleError(Exception):
    """No rule or word satisfies the features that are asked for."""


@dataclass
class Node:
    """A node of the abstract tree: a leaf has an entry, any other a rule and slots."""

    number: int
    category: str
    features: dict[str, str]
    scope: int
    rule: Rule | None = None
    entry: Entry | None = None
    slots: dict[str, Node] = field(default_factory=dict)

    def walk(self) -> list[Node]:
        """This node and all below it, parents first."""
        nodes = [self]
        for node in nodes:
            nodes.extend(node.slots.values())
        return nodes


class Deriver:
    """Makes derivations of a grammar; what the rules leave open is up to ``choice``."""

    def __init__(
        self, lexicon: Lexicon, rules: Mapping[str, Sequence[Rule]], choice: Choice
    ) -> None:
        self._lexicon = lexicon
        self._rules = rules
        self._choice = choice
        self._number = 0
        self._asked = {
            category: sorted({name for rule in alternatives for name, _ in rule.when})
            for category, alternatives in rules.items()
        }
        self._applying: dict[tuple[str | None, ...], tuple[Rule, ...]] = {}

    def derive(self, category: str) -> Node:
        """A tree of ``category``.

        Raises:
            ImpossibleError: the grammar has none.
        """
        return self._expand(category, {}, 0)

    def _expand(self, category: str, features: dict[str, str], scope: int) -> Node:
        if category in self._lexicon.categories:
            return self._leaf(category, features, scope)
        rules = list(self._applicable(category, features))
        while rules:
            rule = self._choice.rule(rules)
            try:
                return self._apply(rule, dict(features), scope)
            except ImpossibleError:
                rules.remove(rule)
        raise ImpossibleError(category)

    def _applicable(self, category: str, features: Mapping[str, str]) -> tuple[Rule, ...]:
        key = (category, *(features.get(name) for name in self._asked[category]))
        rules = self._applying.get(key)
        if rules is None:
            rules = tuple(rule for rule in self._rules[category] if rule.applies(features))
            self._applying[key] = rules
        return rules

    def _apply(self, rule: Rule, features: dict[str, str], scope: int) -> Node:
        self._number += 1
        node = Node(self._number, rule.category, features, scope, rule)
        if rule.scope:
            node.scope = node.number
        for name, options in rule.choose:
            asked = Condition.parse(features.get(name, "!"))
            open_options = [option for option in options if asked.holds(option.value)]
            if not open_options:
                raise ImpossibleError(name)
            features[name] = self._choice.value(open_options)
        for slot in rule.slots:
            if not self._choice.includes(slot.name, slot.chance):
                continue
            try:
                self._fill(node, slot)
            except ImpossibleError:
                if not slot.optional:
                    raise
        for slot in rule.slots:
            child = node.slots.get(slot.name)
            if child is not None and child.entry is not None:
                late = _resolve(node, slot.features)
                child.features |= {k: v for k, v in late.items() if k not in child.entry.features}
        features |= {name: v for name, v in _resolve(node, rule.set).items() if v != NONE}
        return node

    def _fill(self, node: Node, slot: Slot) -> None:
        child = self._expand(slot.category, _resolve(node, slot.features), node.scope)
        node.slots[slot.name] = child
        if child.rule is not None and child.rule.transparent:
            node.slots |= child.slots
            child.slots = {}

    def _leaf(self, category: str, features: dict[str, str], scope: int) -> Node:
        candidates = self._lexicon.candidates(category, features)
        if not candidates.entries:
            raise ImpossibleError(category)
        entry = self._choice.entry(candidates)
        self._number += 1
        node = Node(self._number, category, {**features, **entry.features}, scope, entry=entry)
        for name in _NARROWED:
            value = features.get(name, "|")
            if "|" not in value and not value.startswith("!"):
                node.features[name] = value
        number = features.get("number", "")
        if "gender" in entry.features:
            gender = entry.features["gender"]
            node.features["agreement"] = "pl" if number == "pl" else gender
        return node


def _resolve(node: Node, references: Sequence[Reference]) -> dict[str, str]:
    """Feature values in terms of the node; an inherited feature may be absent."""
    features: dict[str, str] = {}
    for reference in references:
        name = reference.name
        kind = reference.kind
        key = reference.key
        if kind == "literal":
            features[name] = key
        elif kind == "inherited":
            if key in node.features:
                features[name] = reference.negation + node.features[key]
        elif kind == "prefix":
            for feature, value in node.features.items():
                if feature.startswith(key):
                    features[feature.removeprefix(key)] = value
        else:
            child = node.slots.get(reference.slot)
            sibling = child.features.get(key) if child is not None else None
            if sibling is not None or kind == "sibling":
                features[name] = reference.negation + (sibling or NONE)
    return features
