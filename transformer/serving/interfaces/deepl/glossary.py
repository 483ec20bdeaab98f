"""Glossaries: phrases of a source, and what their translation must contain."""

import csv
import io
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from transformer.common.errors import InputError
from transformer.data.text.phrases import occurs
from transformer.decoding.constraints.request import Constraints

MOST_ENTRIES, LONGEST_PHRASE = 1000, 100
"""Entries, and characters of a phrase."""

MOST_PHRASES = 8
"""That one sentence is asked to have: each subword of them widens the beam of its search."""


@dataclass(frozen=True)
class Glossary:
    """Phrases of one language and what they must become in another."""

    name: str
    source: str
    target: str
    entries: Mapping[str, str]
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    def constraints(self, text: str) -> Constraints | None:
        """The phrases that the translation of a sentence must have: the first ones."""
        found = (target for source, target in self.entries.items() if occurs(source, text))
        must = tuple(islice(dict.fromkeys(found), MOST_PHRASES))
        return Constraints(must=must) if must else None

    def to_json(self) -> dict[str, Any]:
        """As the interface shows it."""
        return {
            "glossary_id": self.id,
            "name": self.name,
            "ready": True,
            "source_lang": self.source,
            "target_lang": self.target,
            "creation_time": self.created.isoformat().replace("+00:00", "Z"),
            "entry_count": len(self.entries),
        }


def parse_entries(text: str, form: str) -> dict[str, str]:
    """The entries of a glossary, a source and a target phrase a line, from TSV or CSV.

    Raises:
        InputError: An entry is incomplete or there twice, or there are too many or none.
    """
    entries: dict[str, str] = {}
    for row in _rows(text, form):
        source, target = [cell.strip() for cell in row[:2]] if len(row) > 1 else ("", "")
        if not source or not target:
            raise InputError("A line of the glossary is not a SOURCE and a TARGET")
        if max(len(source), len(target)) > LONGEST_PHRASE:
            raise InputError(f"A phrase has more than {LONGEST_PHRASE} characters")
        if source in entries:
            raise InputError(f"{source!r} is in the glossary twice")
        Constraints(must=(target,))
        entries[source] = target
    if not 0 < len(entries) <= MOST_ENTRIES:
        raise InputError(f"A glossary has 1 to {MOST_ENTRIES} entries")
    return entries


def _rows(text: str, form: str) -> list[list[str]]:
    lines = io.StringIO(text, newline=None)
    try:
        if form == "csv":
            return list(csv.reader(lines))
        if form == "tsv":
            return list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    except csv.Error as error:
        raise InputError(f"The glossary is no {form}: {error}") from error
    raise InputError("entries_format must be tsv or csv")
