"""The bilingual lexicon: entries with all their forms, and their selection by features.

It knows the notation of the lexicon files, not the rules that use the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from scripts.pocket import inflection
from scripts.pocket.inflection import Forms

NONE = "none"
"""A feature value that no entry has."""


@dataclass(frozen=True)
class Category:
    """How the leaves of a lexical category are chosen and inflected.

    ``select`` names the features that choose an entry, ``english`` and ``german`` those that
    make up the key of a form; ``tag`` is the Universal POS tag.
    """

    name: str
    tag: str
    select: tuple[str, ...]
    english: tuple[str, ...]
    german: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A pair of translations: ``features`` values are alternatives joined by ``|``.

    The name is unique in its category, the lemma (``category:name``) in the lexicon.
    """

    category: Category
    name: str
    lemma: str
    english: Forms
    german: Forms
    features: Mapping[str, str]
    values: Mapping[str, frozenset[str]] = field(repr=False)
    weight: float
    english_tags: tuple[str, ...]
    german_tags: tuple[str, ...]

    @property
    def compound(self) -> bool:
        """Whether both sides are several words: then the last ones translate each other."""
        return len(self.english_tags) > 1 and len(self.german_tags) > 1

    def agrees(self, name: str, wanted: str) -> bool:
        """Whether the feature has one of the wanted alternatives, or none of them after ``!``."""
        values = self.values.get(name, frozenset())
        if wanted.startswith("!"):
            return values.isdisjoint(wanted[1:].split("|"))
        return not values.isdisjoint(wanted.split("|"))


@dataclass(frozen=True)
class Candidates:
    """Entries to draw from, with the running sum of their weights."""

    entries: tuple[Entry, ...]
    sums: tuple[float, ...]


class Lexicon:
    """All entries of all categories.

    Args:
        morphology: the content of ``morphology.yaml``: categories, endings, classes,
            auxiliaries and the tables of determiners.

    Raises:
        ValueError: a table is malformed; KeyError where a part is missing.
    """

    def __init__(self, morphology: Mapping[str, Any]) -> None:
        self._adjective_endings = morphology["adjective_endings"]
        self._tables = morphology["determiner_tables"]
        self._tense_classes = morphology["tense_classes"]
        self._parents = _parents(morphology["classes"])
        self.categories = {
            name: Category(
                name,
                item["tag"],
                tuple(item.get("select", ())),
                tuple(item.get("en", ())),
                tuple(item.get("de", ())),
            )
            for name, item in morphology["categories"].items()
        }
        self.entries: dict[str, list[Entry]] = {name: [] for name in self.categories}
        self.auxiliaries = {
            side: {name: _auxiliary(forms) for name, forms in verbs.items()}
            for side, verbs in morphology["auxiliaries"].items()
        }
        self._masks: dict[tuple[str, str, str], int] = {}
        self._candidates: dict[tuple[str, tuple[str, ...]], Candidates] = {}

    def add(self, category: str, group: str, items: Mapping[str, Any]) -> None:
        """Add a group of entries: a class of nouns, a frame of verbs.

        Args:
            category: lexical category, a key of ``categories``.
            group: value of the feature the category groups by (class or frame).
            items: English notation to German notation, or to a mapping with the key ``de``
                and features.

        Raises:
            ValueError: an entry is malformed or occurs twice.
        """
        names = {entry.name for entry in self.entries[category]}
        for english, item in items.items():
            try:
                attributes = dict(item) if isinstance(item, Mapping) else {"de": item}
                entry = self._entry(category, group, english, attributes)
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise ValueError(f"{category} {english!r}: {error}") from error
            if entry.name in names:
                raise ValueError(f"{category} {english!r} occurs twice")
            names.add(entry.name)
            self.entries[category].append(entry)

    def candidates(self, category: str, features: Mapping[str, str]) -> Candidates:
        """The entries that agree with every selecting feature that is given."""
        select = self.categories[category].select
        key = (category, tuple(features.get(name, "") for name in select))
        candidates = self._candidates.get(key)
        if candidates is None:
            mask = (1 << len(self.entries[category])) - 1
            for name, wanted in zip(select, key[1], strict=True):
                if wanted:
                    mask &= self._mask(category, name, wanted)
            entries = self.entries[category]
            chosen = tuple(entry for index, entry in enumerate(entries) if mask >> index & 1)
            candidates = Candidates(chosen, tuple(accumulate(entry.weight for entry in chosen)))
            self._candidates[key] = candidates
        return candidates

    def _mask(self, category: str, name: str, wanted: str) -> int:
        """The entries that agree on one feature, as a bit mask."""
        mask = self._masks.get((category, name, wanted))
        if mask is None:
            agree = (entry.agrees(name, wanted) for entry in self.entries[category])
            mask = sum(1 << index for index, agrees in enumerate(agree) if agrees)
            self._masks[category, name, wanted] = mask
        return mask

    def _entry(self, category: str, group: str, english: str, item: dict[str, Any]) -> Entry:
        kind = self.categories[category]
        features = {key: value for key, value in item.items() if key not in _RESERVED}
        name = english.partition(",")[0].removesuffix(" (plural)")
        forms = self._forms(category, item.get("en", english), item, features)
        if category == "noun":
            self._describe_noun(name, group, forms[1], features)
        elif category == "verb":
            self._describe_verb(name, group, forms[0], features)
            name = f"{name} ({group})"
        elif category == "adjective" and ("comparable" in features or "mood" in features):
            features |= {"graded": "yes", "compares": "yes" if "comparable" in features else "no"}
        if "class" in features:
            features["within"] = features["owned"] = features["class"]
        features["name"] = name
        tags = item.get("tag", kind.tag)
        return Entry(
            category=kind,
            name=name,
            lemma=f"{category}:{name}",
            english=forms[0],
            german=forms[1],
            features=features,
            values={key: frozenset(value.split("|")) for key, value in features.items()},
            weight=float(item.get("weight", 1)),
            english_tags=tuple(item.get("en_tag", tags).split()),
            german_tags=tuple(item.get("de_tag", tags).split()),
        )

    def _describe_noun(
        self, name: str, group: str, german: Forms, features: dict[str, str]
    ) -> None:
        features |= {"class": "|".join(self._ancestors([name, group])), "group": group}
        self._parents.setdefault(name, []).append(group)
        features.setdefault("count", "yes" if "pl.nom" in german else "mass")
        features.setdefault("number", _numbers(german))

    def _describe_verb(
        self, name: str, frame: str, english: Forms, features: dict[str, str]
    ) -> None:
        features |= {"frame": frame, "lemma": name}
        kind = features.get("tense", "action")
        if kind in ("state", "place"):
            features |= {"adjuncts": "bare", "stative": "yes"}
        tenses = self._tense_classes[kind].split("|")
        if english["past.1sg"] == english["base"]:
            tenses.remove("past")  # "they put" would be present and past
        features["tense"] = "|".join(tenses)
        features["agent"] = "|".join(self._ancestors(features.get("subject", NONE).split("|")))

    def _forms(
        self, category: str, english: Any, item: dict[str, Any], features: dict[str, str]
    ) -> tuple[Forms, Forms]:
        german = item["de"]
        if category == "noun":
            features["gender"], forms = inflection.german_noun(german)
            return inflection.english_noun(english), forms
        if category == "verb":
            preposition = " " + features.get("preposition", "").partition("/")[0]
            base, *others = inflection.parts_of(english)
            english = ", ".join([base.removesuffix(preposition), *others])
            return (
                _auxiliary(item["en_forms"])
                if "en_forms" in item
                else inflection.english_verb(english),
                _auxiliary(item["forms"]) if "forms" in item else inflection.german_verb(german),
            )
        if category == "adjective":
            return inflection.english_adjective(english), inflection.german_adjective(
                german, self._adjective_endings
            )
        if "table" in item:
            table = inflection.german_determiner(german, self._tables[item["table"]])
            return _listed(english), table
        return _listed(english), _listed(german)

    def _ancestors(self, classes: Iterable[str]) -> list[str]:
        ancestors: list[str] = []
        agenda = list(classes)
        while agenda:
            name = agenda.pop(0)
            if name not in ancestors:
                ancestors.append(name)
                agenda.extend(self._parents.get(name, ()))
        return ancestors


_RESERVED = {"de", "en", "tag", "en_tag", "de_tag", "weight", "table", "forms", "en_forms"}


def _listed(forms: Any) -> Forms:
    """A word that does not inflect, or a mapping of its forms, or a list by case."""
    if isinstance(forms, list):
        return dict(zip(inflection.CASES, forms, strict=False))
    return dict(forms) if isinstance(forms, Mapping) else {"": forms}


def _parents(classes: Mapping[str, list[str]]) -> dict[str, list[str]]:
    parents: dict[str, list[str]] = {}
    for parent, children in classes.items():
        for child in children:
            parents.setdefault(child, []).append(parent)
    return parents


def _numbers(forms: Forms) -> str:
    return "|".join(number for number in ("sg", "pl") if f"{number}.nom" in forms)


def _auxiliary(forms: Mapping[str, Any]) -> Forms:
    """Forms given in full: lists go by person, words stand for themselves."""
    result: Forms = {"particle": ""}
    for key, form in forms.items():
        if isinstance(form, list):
            for person, word in zip(inflection.PERSONS, form, strict=True):
                result[f"{key}.{person}"] = word
        else:
            result[key] = form
    return result
