"""The glossaries of DeepL's interface; each is of one client, and gone when the server ends."""

import csv
import io
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transformer.common.errors import InputError
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.constraints.terms import Glossary
from transformer.serving.access import Client
from transformer.serving.batch_translation import Options
from transformer.serving.interfaces.http import Refusal, read_parameters
from transformer.serving.request_queue import RequestQueue

_DIALECTS: dict[str, Any] = {"csv": {}, "tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE}}

_MOST_GLOSSARIES = 100
"""Of a client."""

_MOST_ENTRIES, _LONGEST_PHRASE = 1000, 100


@dataclass(frozen=True, kw_only=True)
class NamedGlossary(Glossary):
    """A glossary of one client."""

    name: str
    source: str
    target: str
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_json(self) -> dict[str, Any]:
        """The JSON of the interface, without the entries."""
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
    """The entries of a glossary; raises InputError if it is malformed or too large."""
    entries: dict[str, str] = {}
    try:
        for row in csv.reader(io.StringIO(text, newline=None), **_DIALECTS[form]):
            source, target = (cell.strip() for cell in row[:2])
            if not 0 < min(len(source), len(target)) <= max(map(len, row[:2])) <= _LONGEST_PHRASE:
                raise ValueError(f"a phrase must have 1 to {_LONGEST_PHRASE} characters")
            Constraints(must=(target,))
            entries[source] = target
        if not 0 < len(entries) <= _MOST_ENTRIES:
            raise ValueError(f"it must have 1 to {_MOST_ENTRIES} entries")
    except (KeyError, ValueError, csv.Error) as error:
        raise InputError(f"The glossary is no {form} of SOURCE and TARGET: {error}") from error
    return entries


class DeepLGlossaries:
    """The glossaries of all clients, and their routes."""

    def __init__(self, queue: RequestQueue) -> None:
        self.queue, self.directions = queue, queue.directions
        self._glossaries: defaultdict[Client | None, dict[str, NamedGlossary]] = defaultdict(dict)

    def options(self, request: Request, asked: Mapping[str, Any], texts: Sequence[str]) -> Options:
        """The requested direction and the constraints of the glossary; Refusal if there is none."""
        if asked.get("formality") in ("more", "less"):
            raise Refusal(400, "formality is not supported for this language")
        target = self.directions.code(str(asked.get("target_lang", "")), self.directions.targets)
        given = asked.get("source_lang") or self.queue.detect_source(texts, target or "").language
        source = self.directions.code(str(given), self.directions.sources)
        if source is None or target is None:
            name = "target_lang" if target is None else "source_lang"
            raise Refusal(400, f"Value for '{name}' not supported.")
        direction = self.directions.by_codes.get((source, target))
        if direction is None:
            raise Refusal(400, f"Translation from {source} to {target} is not supported.")
        if not asked.get("glossary_id"):
            return Options(direction)
        glossary = self._find(request, str(asked["glossary_id"]))
        if (glossary.source, glossary.target) != (source, target):
            raise Refusal(400, "the glossary is of other languages")
        return Options(direction, constrain=glossary.constraints)

    async def pairs(self, request: Request) -> Response:
        pairs = [
            {"source_lang": one.source, "target_lang": one.target} for one in self.directions.all
        ]
        return JSONResponse({"supported_languages": pairs})

    async def add(self, request: Request) -> Response:
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
        name = str(asked.get("name", ""))
        glossary = NamedGlossary(entries=entries, name=name, source=source, target=target)
        glossaries[glossary.id] = glossary
        return JSONResponse(glossary.to_json(), 201)

    async def list_all(self, request: Request) -> Response:
        glossaries = self._glossaries[request.state.client].values()
        return JSONResponse({"glossaries": [glossary.to_json() for glossary in glossaries]})

    async def show(self, request: Request) -> Response:
        return JSONResponse(self._find(request).to_json())

    async def show_entries(self, request: Request) -> Response:
        lines = map("\t".join, self._find(request).entries.items())
        return PlainTextResponse("\n".join(lines), media_type="text/tab-separated-values")

    async def delete(self, request: Request) -> Response:
        del self._glossaries[request.state.client][self._find(request).id]
        return Response(status_code=204)

    def _find(self, request: Request, name: str | None = None) -> NamedGlossary:
        found = self._glossaries[request.state.client].get(name or request.path_params["id"])
        if found is None:
            raise Refusal(404, "Glossary not found")
        return found
