"""Derivations of a synchronous grammar: one abstract tree for both languages.

It chooses rules and words; it knows neither morphology nor word order. After synchronous
rewriting with features (Shieber and Schabes, "Synchronous Tree-Adjoining Grammars", 1990).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from transformer.data.lexicon import NONE, Entry, Lexicon


class Weighted(Protocol):
    """What can be drawn: the likelier, the greater its weight."""

    @property
    def weight(self) -> float:
        """A positive number."""


W = TypeVar("W", bound=Weighted)

_SLOT = re.compile(r"^(?P<category>[\w-]+)(?P<optional>\?)?(?P<chance>[\d.]+)?(\[(?P<features>[^]]*)\])?$")
_NARROWED = ("number", "tense", "gender", "kind")
"""Features of which a leaf keeps the one value that was asked for, not all the entry's."""

_RULE_KEYS = {"name", "weight", "when", "choose", "slots", "set", "en", "de", "scope"}


@dataclass(frozen=True)
class Condition:
    """What a feature may be: one of ``values``, or none of them if ``negated``."""

    values: frozenset[str]
    negated: bool

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read ``"main|fronted"`` or ``"!perfect"``."""
        return cls(frozenset(text.removeprefix("!").split("|")), text.startswith("!"))

    def holds(self, value: str) -> bool:
        """Whether a value, or one of the alternatives of a value, is allowed."""
        if "|" in value:
            return any(self.holds(alternative) for alternative in value.split("|"))
        return (value in self.values) != self.negated


class ImpossibleError(Exception):
    """No rule or word satisfies the features that are asked for."""


@dataclass(frozen=True)
class Reference:
    """Where the value of a feature comes from.

    ``value`` (literal), ``$name`` (inherited), ``@slot.name`` (sibling: none if it is
    missing), ``?@slot.name`` (left out if it is missing); a leading ``!`` negates. A name
    ``prefix-*`` stands for all features of the node with that prefix, without it.
    """

    name: str
    kind: str
    key: str
    slot: str = ""
    negation: str = ""

    @classmethod
    def parse(cls, name: str, text: str) -> Reference:
        """Read one ``name=text``."""
        if name.endswith("*"):
            return cls(name, "prefix", name[:-1])
        negation = "!" if text.startswith("!") and text[1:2] in ("$", "@") else ""
        body = text[len(negation):]
        if body.startswith("$"):
            return cls(name, "inherited", body[1:], "", negation)
        if body.startswith(("@", "?@")):
            slot, _, key = body.removeprefix("?")[1:].partition(".")
            return cls(name, "optional" if body[0] == "?" else "sibling", key, slot, negation)
        return cls(name, "literal", body)


@dataclass(frozen=True)
class Slot:
    """A child of a rule: its category, the chance that it is there, and its features.

    An optional slot is left out where nothing fits.
    """

    name: str
    category: str
    chance: float
    optional: bool
    features: tuple[Reference, ...]


@dataclass(frozen=True)
class Option:
    """A value that a rule may choose for a feature."""

    value: str
    weight: float


@dataclass(frozen=True)
class Rule:
    """One way to expand a category; a rule without orders hands its slots to its parent."""

    category: str
    name: str
    weight: float
    when: tuple[tuple[str, Condition], ...]
    choose: tuple[tuple[str, tuple[Option, ...]], ...]
    slots: tuple[Slot, ...]
    set: tuple[Reference, ...]
    scope: bool
    orders: Mapping[str, Any]

    @property
    def transparent(self) -> bool:
        """Whether the slots belong to the parent."""
        return not self.orders

    @classmethod
    def parse(cls, category: str, item: Mapping[str, Any]) -> Rule:
        """Read one rule of ``rules.yaml``.

        Raises:
            ValueError: an unknown key or a malformed slot.
        """
        unknown = set(item) - _RULE_KEYS
        if unknown:
            raise ValueError(f"rule of {category}: unknown key {sorted(unknown)[0]!r}")
        when = {key: Condition.parse(str(value)) for key, value in item.get("when", {}).items()}
        choose = {
            key: tuple(Option(str(value), float(weight)) for value, weight in options.items())
            for key, options in item.get("choose", {}).items()
        }
        return cls(
            category,
            str(item["name"]),
            float(item.get("weight", 1)),
            tuple(when.items()),
            tuple(choose.items()),
            tuple(_slot(str(k), str(v)) for k, v in item.get("slots", {}).items()),
            tuple(Reference.parse(k, v) for k, v in item.get("set", {}).items()),
            item.get("scope") == "yes",
            {side: item[side] for side in ("en", "de") if side in item},
        )

    def applies(self, features: Mapping[str, str]) -> bool:
        """Whether the features asked for meet ``when``; an absent feature counts as ``no``."""
        return all(condition.holds(features.get(name, "no")) for name, condition in self.when)


def _slot(name: str, text: str) -> Slot:
    match = _SLOT.match(text)
    if match is None:
        raise ValueError(f"slot {name}: {text!r} is not category?chance[feature=value, ...]")
    pairs = [part.strip().partition("=") for part in (match["features"] or "").split(",") if part]
    return Slot(
        name, match["category"], float(match["chance"] or 1), bool(match["optional"]),
        tuple(Reference.parse(key, value) for key, _, value in pairs),
    )


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

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for child in self.slots.values():
            yield from child.walk()


class Deriver:
    """Draws derivations at random; the same seed gives the same ones on every platform.

    Only ``random.Random.random`` is used: its sequence is what Python promises to keep.
    Of words that are equally likely it draws two and takes the one used less often, so that
    rare words do not stay rare.
    """

    def __init__(self, lexicon: Lexicon, rules: Mapping[str, Sequence[Rule]], seed: int) -> None:
        self._lexicon = lexicon
        self._rules = rules
        self._random = random.Random(seed).random
        self._used: Counter[str] = Counter()
        self._number = 0
        self._asked = {
            category: sorted({name for rule in alternatives for name, _ in rule.when})
            for category, alternatives in rules.items()
        }
        self._applying: dict[tuple[str | None, ...], tuple[Rule, ...]] = {}

    def derive(self, category: str, features: Mapping[str, str] | None = None) -> Node:
        """A tree of ``category`` with the features asked for.

        Raises:
            ImpossibleError: the grammar has none.
        """
        return self._expand(category, dict(features or {}), 0)

    def _expand(self, category: str, features: dict[str, str], scope: int) -> Node:
        if category in self._lexicon.categories:
            return self._leaf(category, features, scope)
        rules = list(self._applicable(category, features))
        while rules:
            rule = self._draw(rules)
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
            features[name] = self._draw(open_options).value
        for slot in rule.slots:
            if slot.chance < 1 and self._random() >= slot.chance:
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
        if not candidates:
            raise ImpossibleError(category)
        first, second = self._draw(candidates), self._draw(candidates)
        if first.weight == second.weight and self._used[second.lemma] < self._used[first.lemma]:
            first = second
        self._used[first.lemma] += 1
        self._number += 1
        node = Node(self._number, category, {**features, **first.features}, scope, entry=first)
        for name in _NARROWED:
            value = features.get(name, "|")
            if "|" not in value and not value.startswith("!"):
                node.features[name] = value
        number = features.get("number", "")
        if "gender" in first.features:
            gender = first.features["gender"]
            node.features["agreement"] = "pl" if number == "pl" else gender
        return node

    def _draw(self, options: Sequence[W]) -> W:
        rest = self._random() * sum([option.weight for option in options])
        for option in options:
            rest -= option.weight
            if rest < 0:
                return option
        return options[-1]


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
