"""The verb group: finite verb, auxiliaries, particle and reflexive of a clause, part by part.

It knows tenses and agreement, not where in the clause the parts go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.pocket.derivation import Node
from scripts.pocket.inflection import Forms
from scripts.pocket.lexical_entry import Entry

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
            first, others = others, ""
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
        main, aux = (verb.number, ""), (verb.number, "aux")
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
