"""Entries of the bilingual lexicon and how they are selected by their features.

It knows neither where entries come from nor the rules that ask for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
