"""The rules of a synchronous grammar: slots, features, and the order in each language.

It knows the notation of rules.yaml (see README.md), not how rules are drawn. After
synchronous rewriting with features (Shieber and Schabes, "Synchronous Tree-Adjoining
Grammars", 1990).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SIDES = ("en", "de")

_SLOT = re.compile(
    r"^(?P<category>[\w-]+)(?P<optional>\?)?(?P<chance>[\d.]+)?(\[(?P<features>[^]]*)\])?$"
)
_ITEM = re.compile(r"^(?P<body>[^()\s]+?)(\((?P<conditions>[^)]*)\))?$")
_FRAGMENT = re.compile(r"<([\w-]+)>")
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
        body = text[len(negation) :]
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

    @classmethod
    def parse(cls, name: str, text: str) -> Slot:
        """Read ``category?0.5[feature=value, ...]``.

        Raises:
            ValueError: the text is malformed.
        """
        match = _SLOT.match(text)
        if match is None:
            raise ValueError(f"slot {name}: {text!r} is not category?chance[feature=value, ...]")
        parts = [part.strip().partition("=") for part in (match["features"] or "").split(",")]
        features = tuple(Reference.parse(key, value) for key, _, value in parts if key)
        chance = float(match["chance"] or 1)
        return cls(name, match["category"], chance, bool(match["optional"]), features)


@dataclass(frozen=True)
class Item:
    """One place in an order: a word with its tag and label, or a slot and a part of it.

    The conditions are on the features of the slot, or of the node itself for a word.
    """

    word: str
    tag: str
    label: str
    slot: str
    part: str
    conditions: tuple[tuple[str, Condition], ...]

    @classmethod
    def parse(cls, text: str) -> Item:
        """Read ``nicht/PART=not(polarity=neg)`` or ``verb.finite`` or ``object(pronoun=yes)``.

        Raises:
            ValueError: the text is malformed.
        """
        match = _ITEM.match(text)
        if match is None:
            raise ValueError(f"malformed item {text!r} in an order")
        pairs = [pair.partition("=") for pair in (match["conditions"] or "").split(",") if pair]
        conditions = tuple((name, Condition.parse(value)) for name, _, value in pairs)
        body = match["body"]
        if "/" in body:
            word, _, rest = body.partition("/")
            tag, _, label = rest.partition("=")
            return cls(word, tag, label, "", "", conditions)
        slot, _, part = body.partition(".")
        return cls("", "", "", slot, part, conditions)


Orders = Mapping[str, tuple[Item, ...]]
"""Items by the value of the feature ``order``; ``""`` where a rule has one order only."""


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
    orders: Mapping[str, Orders]

    @property
    def transparent(self) -> bool:
        """Whether the slots belong to the parent."""
        return not self.orders

    @classmethod
    def parse(cls, category: str, item: Mapping[str, Any], fragments: Mapping[str, str]) -> Rule:
        """Read one rule of rules.yaml, whose orders may name fragments.

        Raises:
            ValueError: an unknown key, slot notation or order.
            KeyError: an unknown fragment, or no name.
        """
        unknown = set(item) - _RULE_KEYS
        if unknown:
            raise ValueError(f"a rule of {category} has the unknown key {sorted(unknown)[0]!r}")
        choose = {
            key: tuple(Option(value, float(weight)) for value, weight in options.items())
            for key, options in item.get("choose", {}).items()
        }
        return cls(
            category=category,
            name=item["name"],
            weight=float(item.get("weight", 1)),
            when=tuple((k, Condition.parse(v)) for k, v in item.get("when", {}).items()),
            choose=tuple(choose.items()),
            slots=tuple(Slot.parse(k, v) for k, v in item.get("slots", {}).items()),
            set=tuple(Reference.parse(k, v) for k, v in item.get("set", {}).items()),
            scope=item.get("scope") == "yes",
            orders={side: _orders(item[side], fragments) for side in SIDES if side in item},
        )

    def applies(self, features: Mapping[str, str]) -> bool:
        """Whether the features asked for meet ``when``; an absent feature counts as ``no``."""
        return all(condition.holds(features.get(name, "no")) for name, condition in self.when)


def _orders(texts: str | Mapping[str, str], fragments: Mapping[str, str]) -> Orders:
    if isinstance(texts, str):
        texts = {"": texts}
    orders: dict[str, tuple[Item, ...]] = {}
    for kinds, text in texts.items():
        while _FRAGMENT.search(text):
            text = _FRAGMENT.sub(lambda match: fragments[match[1]], text)
        items = tuple(Item.parse(part) for part in text.split())
        orders |= dict.fromkeys(kinds.split("|"), items)
    return orders


def check_rules(rules: Mapping[str, Sequence[Rule]], lexical: Collection[str]) -> None:
    """Check that every category and every slot that the rules name exists.

    Raises:
        ValueError: one does not.
    """
    known = {rule.category: _slots_of(rule.category, rules) for (rule, *_) in rules.values()}
    for rule in (rule for alternatives in rules.values() for rule in alternatives):
        for slot in rule.slots:
            if slot.category not in rules and slot.category not in lexical:
                raise ValueError(f"{rule.category}, {rule.name}: no category {slot.category!r}")
        for orders in rule.orders.values():
            for item in (item for items in orders.values() for item in items):
                if item.slot and item.slot not in known[rule.category]:
                    raise ValueError(f"{rule.category}, {rule.name}: no slot {item.slot!r}")


def _slots_of(category: str, rules: Mapping[str, Sequence[Rule]]) -> set[str]:
    """The slots of a category's rules, with those that transparent children hand up."""
    slots: set[str] = set()
    for slot in (slot for rule in rules.get(category, ()) for slot in rule.slots):
        slots.add(slot.name)
        if any(rule.transparent for rule in rules.get(slot.category, ())):
            slots |= _slots_of(slot.category, rules)
    return slots
