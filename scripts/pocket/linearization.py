"""From a derivation to the words of one language, with keys that align the two languages.

It knows orders, agreement and spelling, not how a derivation was drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scripts.pocket.derivation import Node
from scripts.pocket.rule import Item
from scripts.pocket.verb_group import VerbGroups

Key = tuple[int, str]


@dataclass(frozen=True)
class Token:
    """A word, its Universal POS tag, and the keys it shares with its translations."""

    word: str
    tag: str
    keys: tuple[Key, ...]


class Linearizer:
    """Words of a derivation on one side.

    Args:
        side: ``en`` or ``de``.
        verb_groups: the verb groups of this side.
        spelling: ``contractions`` (preposition to article to contracted form), ``an`` (words
            that take another article than their first letter says).
    """

    def __init__(self, side: str, verb_groups: VerbGroups, spelling: Mapping[str, Any]) -> None:
        self._side = side
        self._verb_groups = verb_groups
        self._contractions: Mapping[str, Mapping[str, str]] = spelling["contractions"]
        self._an = {word: value == "yes" for word, value in spelling["an"].items()}

    def sentence(self, root: Node) -> list[Token]:
        """The tokens of a sentence, spelled: contractions, a or an, commas, capital."""
        tokens = self._contracted(self._commas(self._tokens(root)))
        if self._side == "en":
            tokens = self._articles(tokens)
        first = tokens[0]
        capital = Token(first.word[0].upper() + first.word[1:], first.tag, first.keys)
        return [capital, *tokens[1:]]

    def _tokens(self, node: Node) -> list[Token]:
        if node.entry is not None:
            return self._leaf(node)
        group: dict[str, list[Token]] | None = None
        tokens: list[Token] = []
        for item in self._order(node):
            if item.word:
                if not item.conditions or _holds(item, node):
                    tokens.append(Token(item.word, item.tag, (_key(node, item.label),)))
                continue
            child = node.slots.get(item.slot)
            if child is None or (item.conditions and not _holds(item, child)):
                continue
            if not item.part:
                tokens.extend(self._tokens(child))
                continue
            if child.entry is None:
                if item.part in child.slots:
                    tokens.extend(self._tokens(child.slots[item.part]))
                continue
            if group is None:
                parts = self._verb_groups.parts(node)
                group = {name: [Token(*word) for word in words] for name, words in parts.items()}
            tokens.extend(group[item.part])
        return tokens

    def _order(self, node: Node) -> tuple[Item, ...]:
        assert node.rule is not None
        orders = node.rule.orders[self._side]
        return orders[node.features["order"]] if "" not in orders else orders[""]

    def _leaf(self, node: Node) -> list[Token]:
        entry = node.entry
        assert entry is not None
        english = self._side == "en"
        forms = entry.english if english else entry.german
        names = entry.category.english if english else entry.category.german
        word = forms.get("")
        if word is None:
            values = [node.features.get(name, "") for name in names]
            word = forms[".".join(filter(None, values))]
        tags = entry.english_tags if english else entry.german_tags
        keys: tuple[Key, ...] = ((node.number, ""),)
        if "key" in node.features:
            keys += ((node.scope, node.features["key"]),)
        words = word.split()
        tokens = [Token(w, tags[min(i, len(tags) - 1)], keys) for i, w in enumerate(words)]
        if entry.compound:
            head: Key = (node.number, "head")
            tokens[-1] = Token(words[-1], tokens[-1].tag, (head, *keys[1:]))
        return tokens

    def _commas(self, tokens: list[Token]) -> list[Token]:
        """Of two marks in a row the comma goes."""
        following = [*tokens[1:], None]
        return [
            token
            for token, then in zip(tokens, following, strict=True)
            if not (token.word == "," and then is not None and then.tag == "PUNCT")
        ]

    def _contracted(self, tokens: list[Token]) -> list[Token]:
        """in dem -> im, can not -> cannot, with the keys of both; a relative dem stays."""
        result: list[Token] = []
        for token in tokens:
            last = result[-1] if result else token
            short = self._contractions.get(last.word.lower(), {}).get(token.word)
            if short is not None and token.tag in ("DET", "PART"):
                result[-1] = Token(short, last.tag, last.keys + token.keys)
            else:
                result.append(token)
        return result

    def _articles(self, tokens: list[Token]) -> list[Token]:
        """a -> an before a vowel that is heard."""
        result = list(tokens)
        for index, token in enumerate(tokens[:-1]):
            then = tokens[index + 1].word.lower()
            if token.word == "a" and self._an.get(then, then[0] in "aeiou"):
                result[index] = Token("an", token.tag, token.keys)
        return result


def _holds(item: Item, node: Node) -> bool:
    return all(allowed.holds(node.features.get(name, "no")) for name, allowed in item.conditions)


def _key(node: Node, label: str) -> Key:
    """A label names a slot (or one of its slots), or with ^ something of the clause."""
    if label.startswith("^"):
        return node.scope, label[1:]
    position = node
    for name in label.split("."):
        if name not in position.slots:
            return node.number, label
        position = position.slots[name]
    return position.number, ""
