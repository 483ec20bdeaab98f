"""Glossaries: phrases of a source, and what their translation must contain."""

import csv
import io
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from transformer.common.errors import InputError
from transformer.data.text.phrases import occurs
from transformer.decoding.constraints.request import Constraints

MOST_ENTRIES = 10_000


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
        """The phrases that the translation of a text must have."""
        found = (target for source, target in self.entries.items() if occurs(source, text))
        must = tuple(dict.fromkeys(found))
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
    lines = io.StringIO(text)
    if form == "csv":
        rows = csv.reader(lines)
    else:
        rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    entries: dict[str, str] = {}
    for row in rows:
        source, target = [cell.strip() for cell in row[:2]] if len(row) > 1 else ("", "")
        if not source or not target:
            raise InputError(f"Invalid glossary entry {row}; write SOURCE and TARGET in each line")
        if source in entries:
            raise InputError(f"{source!r} is in the glossary twice")
        Constraints(must=(target,))
        entries[source] = target
    if not 0 < len(entries) <= MOST_ENTRIES:
        raise InputError(f"A glossary has 1 to {MOST_ENTRIES} entries")
    return entries
