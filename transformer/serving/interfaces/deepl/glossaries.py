"""The glossaries of DeepL's interface, which live as long as the server, each for one client."""

import csv
import io
import secrets
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transformer.common.errors import InputError
from transformer.data.text.phrases import occurs
from transformer.decoding.constraints.request import Constraints
from transformer.serving.access import Client
from transformer.serving.interfaces.http import Refusal, read_parameters
from transformer.serving.languages.directions import Direction, Directions
from transformer.serving.translations import Constrain

_DIALECTS: dict[str, Any] = {"csv": {}, "tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE}}

_MOST_GLOSSARIES = 100
"""Of a client."""

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
    """The entries of a glossary; raises InputError if a line is no SOURCE and TARGET."""
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
    if form not in _DIALECTS:
        raise InputError("entries_format must be tsv or csv")
    try:
        return list(csv.reader(io.StringIO(text, newline=None), **_DIALECTS[form]))
    except csv.Error as error:
        raise InputError(f"The glossary is no {form}: {error}") from error


class DeepLGlossaries:
    """Keeps glossaries, and answers what concerns them alone."""

    def __init__(self, directions: Directions) -> None:
        self.directions = directions
        self._glossaries: defaultdict[Client | None, dict[str, Glossary]] = defaultdict(dict)

    def constrain(self, request: Request, name: Any, direction: Direction) -> Constrain | None:
        """The constraints of a sentence by the glossary of that name; None without a name.

        Raises Refusal if this client has no such glossary, or it is of other languages.
        """
        if not name:
            return None
        glossary = self._find(request, str(name))
        if (glossary.source, glossary.target) != (direction.source, direction.target):
            raise Refusal(400, "the glossary is of other languages")
        return glossary.constraints

    async def pairs(self, request: Request) -> Response:
        """The languages that a glossary can have."""
        pairs = [
            {"source_lang": one.source, "target_lang": one.target} for one in self.directions.all
        ]
        return JSONResponse({"supported_languages": pairs})

    async def add(self, request: Request) -> Response:
        """Keep a glossary."""
        asked = await read_parameters(request)
        glossaries = self._glossaries[request.state.client]
        if len(glossaries) >= _MOST_GLOSSARIES:
            raise Refusal(456, f"there are {_MOST_GLOSSARIES} glossaries; delete one")
        source = self.directions.code(str(asked.get("source_lang", "")), self.directions.sources)
        target = self.directions.code(str(asked.get("target_lang", "")), self.directions.targets)
        if source is None or target is None or (source, target) not in self.directions.by_codes:
            raise Refusal(400, "Unsupported glossary source and target language pair")
        text, form = str(asked.get("entries", "")), str(asked.get("entries_format", "tsv"))
        entries = parse_entries(text, form)
        glossary = Glossary(str(asked.get("name", "")), source, target, entries)
        glossaries[glossary.id] = glossary
        return JSONResponse(glossary.to_json(), 201)

    async def list_all(self, request: Request) -> Response:
        """All glossaries of this client."""
        glossaries = self._glossaries[request.state.client].values()
        return JSONResponse({"glossaries": [glossary.to_json() for glossary in glossaries]})

    async def show(self, request: Request) -> Response:
        """One glossary without its entries."""
        return JSONResponse(self._find(request).to_json())

    async def show_entries(self, request: Request) -> Response:
        """The entries of a glossary, as TSV."""
        lines = map("\t".join, self._find(request).entries.items())
        return PlainTextResponse("\n".join(lines), media_type="text/tab-separated-values")

    async def delete(self, request: Request) -> Response:
        """Forget a glossary."""
        del self._glossaries[request.state.client][self._find(request).id]
        return Response(status_code=204)

    def _find(self, request: Request, name: str | None = None) -> Glossary:
        """The glossary of that name, or of the path, if it is of this client."""
        name = name or request.path_params["id"]
        found = self._glossaries[request.state.client].get(name)
        if found is None:
            raise Refusal(404, "Glossary not found")
        return found
