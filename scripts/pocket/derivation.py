"""Derivations of a synchronous grammar: one abstract tree for both languages.

It applies rules that another chooses; it knows neither morphology nor word order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scripts.pocket.choice import Choice
from scripts.pocket.lexical_entry import NONE, Entry
from scripts.pocket.lexicon import Lexicon
from scripts.pocket.rule import Condition, Reference, Rule, Slot

_NARROWED = ("number", "tense", "gender", "kind")
"""Features of which a leaf keeps the one value that was asked for, not all the entry's."""


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
    own = node.features
    for reference in references:
        name, kind, key = reference.name, reference.kind, reference.key
        if kind == "literal":
            features[name] = key
        elif kind == "inherited":
            if key in own:
                features[name] = reference.negation + own[key]
        elif kind == "prefix":
            features |= {k.removeprefix(key): v for k, v in own.items() if k.startswith(key)}
        else:
            child = node.slots.get(reference.slot)
            value = child.features.get(key) if child is not None else None
            if value is not None or kind == "sibling":
                features[name] = reference.negation + (value or NONE)
    return features
