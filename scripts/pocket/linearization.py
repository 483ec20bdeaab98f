"""From a derivation to a sentence pair: words, tags and word alignment of both languages.

It knows verb groups, word orders, agreement and spelling, not how a derivation was drawn.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.pocket.derivation import Node
from scripts.pocket.inflection import Forms
from scripts.pocket.lexicon import Entry
from scripts.pocket.rule import Item

Word = tuple[str, str, tuple[tuple[int, str], ...]]
"""Word, Universal POS tag, alignment keys."""

REFLEXIVES = {"1sg": "mich", "2sg": "dich", "3sg": "sich", "1pl": "uns", "3pl": "sich"}


class VerbGroups:
    """Builds the parts of the verb group of a clause node.

    A tense is written ``"finite words | other words"``, each word ``verb:form``,
    ``NAME:form`` of an auxiliary, or plain, with its tag after a slash if it is no AUX; a
    German adverb follows after ``+``. The English parts are ``auxiliary``, ``lexical`` and
    ``particle``; the German ones ``finite``, ``rest``, ``adverb`` and ``reflexive``.

    Args:
        side: ``en`` or ``de``.
        tenses: tense to side to pattern (English: plain and support).
        inverted: clause orders in which English needs do.
        verb_last: clause orders in which German joins the particle to the finite verb.
        auxiliaries: forms of this side's auxiliaries.
    """

    def __init__(
        self,
        side: str,
        tenses: Mapping[str, Any],
        inverted: Sequence[str],
        verb_last: Sequence[str],
        auxiliaries: Mapping[str, Forms],
    ) -> None:
        self._side = side
        self._tenses = tenses
        self._inverted = frozenset(inverted)
        self._verb_last = frozenset(verb_last)
        self._auxiliaries = auxiliaries

    def parts(self, clause: Node) -> dict[str, list[Word]]:
        """Part name to words."""
        features = clause.features
        subject = clause.slots["subject"].features if "subject" in clause.slots else features
        agreement = subject.get("person", "3") + subject.get("number", "sg")
        verb = clause.slots["verb"]
        assert verb.entry is not None
        tense = self._tenses[features["tense"]][self._side]
        if self._side == "en":
            return self._english(verb, verb.entry, tense, agreement, features)
        order = features.get("order", "")
        return self._german(verb, verb.entry, tense, agreement, order in self._verb_last)

    def _english(
        self, verb: Node, entry: Entry, tense: Any, agreement: str, features: Mapping[str, str]
    ) -> dict[str, list[Word]]:
        copula = entry.features.get("support") == "no"
        inverted = features.get("order") in self._inverted or features.get("polarity") == "neg"
        if isinstance(tense, Mapping):
            tense = tense["support" if inverted and not copula else "plain"]
        first, _, others = tense.partition("|")
        if copula and not first.strip():
            first = others
            others = ""
        keys = self._keys(verb, tense)
        particle = entry.english["particle"]
        return {
            "auxiliary": self._words(first, verb, entry.english, agreement, keys),
            "lexical": self._words(others, verb, entry.english, agreement, keys),
            "particle": [(word, "ADP", keys["verb"]) for word in particle.split()],
        }

    def _german(
        self, verb: Node, entry: Entry, tense: str, agreement: str, verb_last: bool
    ) -> dict[str, list[Word]]:
        pattern, _, adverb = tense.partition("+")
        first, _, others = pattern.partition("|")
        keys = self._keys(verb, pattern)
        finite = self._words(first, verb, entry.german, agreement, keys)
        rest = self._words(others, verb, entry.german, agreement, keys)
        particle = entry.german["particle"]
        if particle and first.strip().startswith("verb:") and "zu" not in first:
            if verb_last:
                word, tag, word_keys = finite[0]
                finite = [(particle + word, tag, word_keys)]
            else:
                rest = [(particle, "ADP", keys["verb"]), *rest]
        reflexive = REFLEXIVES[agreement] if entry.features.get("reflexive") == "yes" else ""
        return {
            "finite": finite,
            "rest": rest,
            "adverb": [(adverb.strip(), "ADV", keys["aux"])] if adverb else [],
            "reflexive": [(reflexive, "PRON", keys["verb"])] if reflexive else [],
        }

    def _keys(self, verb: Node, pattern: str) -> dict[str, tuple[tuple[int, str], ...]]:
        """Without an auxiliary the verb stands for both."""
        main = (verb.number, "")
        aux = (verb.number, "aux")
        alone = all(word.startswith("verb:") for word in pattern.replace("|", " ").split())
        return {"verb": (main, aux) if alone else (main,), "aux": (aux,)}

    def _words(
        self,
        pattern: str,
        verb: Node,
        forms: Forms,
        agreement: str,
        keys: Mapping[str, tuple[tuple[int, str], ...]],
    ) -> list[Word]:
        words: list[Word] = []
        for item in pattern.split():
            source, _, tag = item.partition("/")
            name, _, form = source.partition(":")
            main = name == "verb"
            keys_of = keys["verb" if main else "aux"]
            if not form:
                words.append((name, tag, keys_of))
                continue
            table = forms if main else self._auxiliaries[forms.get(name, name)]
            word = table.get(form) or table[f"{form}.{agreement}"]
            copula = verb.features.get("support") == "no"
            tag = tag or ("VERB" if main and not copula else "AUX")
            *before, last = word.split()
            words += [(part, "PART", keys_of) for part in before]  # zu
            words.append((last, tag, keys_of))
        return words


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
        """Remove a comma before another punctuation mark."""
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


_NO_SPACE_BEFORE = re.compile(r" (?=[.,?!]|'s\b)")


@dataclass(frozen=True)
class Sentence:
    """One side of a pair: words (punctuation apart) and their Universal POS tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentence as it is written."""
        return _NO_SPACE_BEFORE.sub("", " ".join(self.words))

    @property
    def written(self) -> tuple[int, ...]:
        """For each word, the index of the word of ``text``, split at spaces, that contains it."""
        spaced = " ".join(self.words)
        removed = [match.start() for match in _NO_SPACE_BEFORE.finditer(spaced)]
        indices = []
        start = 0
        for word in self.words:
            indices.append(spaced.count(" ", 0, start) - bisect_left(removed, start))
            start += len(word) + 1
        return tuple(indices)


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation; links are (English word, German word), 0-based."""

    english: Sentence
    german: Sentence
    alignment: tuple[tuple[int, int], ...]

    @property
    def links(self) -> frozenset[tuple[int, int]]:
        """The alignment between the words of the two texts, split at spaces.

        A written word has the links of every word in it, its punctuation included.
        """
        english = self.english.written
        german = self.german.written
        return frozenset((english[first], german[second]) for first, second in self.alignment)


def pair_of(english: Sequence[Token], german: Sequence[Token]) -> SentencePair:
    """The pair of two token lists; tokens that share a key are linked."""
    indices: dict[tuple[int, str], list[int]] = {}
    for index, token in enumerate(german):
        for key in token.keys:
            indices.setdefault(key, []).append(index)
    links = {
        (index, position)
        for index, token in enumerate(english)
        for key in token.keys
        for position in indices.get(key, ())
    }
    return SentencePair(_sentence(english), _sentence(german), tuple(sorted(links)))


def _sentence(tokens: Sequence[Token]) -> Sentence:
    return Sentence(tuple(t.word for t in tokens), tuple(t.tag for t in tokens))
