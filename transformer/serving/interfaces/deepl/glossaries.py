"""The glossaries of DeepL's interface, which live as long as the server, each for one client."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transformer.decoding.constraints.request import Constraints
from transformer.serving.access import Client
from transformer.serving.interfaces.deepl.glossary import Glossary, parse_entries
from transformer.serving.interfaces.http import Answer, Refusal, read_parameters
from transformer.serving.languages.directions import Direction, Directions

_MOST_GLOSSARIES = 100
"""Of a client."""


class DeepLGlossaries:
    """Keeps glossaries of some languages, and answers what concerns them alone."""

    def __init__(self, directions: Directions) -> None:
        self.directions = directions
        self._glossaries: defaultdict[Client | None, dict[str, Glossary]] = defaultdict(dict)

    def answers(self) -> Iterator[tuple[str, str, Answer]]:
        """The path and method of each answer."""
        one = "/v2/glossaries/{id}"
        yield "/v2/glossary-language-pairs", "GET", self.glossary_pairs
        yield "/v2/glossaries", "GET", self.list_glossaries
        yield "/v2/glossaries", "POST", self.add_glossary
        yield one, "GET", self.show_glossary
        yield one, "DELETE", self.delete_glossary
        yield one + "/entries", "GET", self.show_entries

    def constrain(
        self, request: Request, name: Any, direction: Direction
    ) -> Callable[[str], Constraints | None] | None:
        """The constraints of a sentence by the glossary of that name; None without a name.

        Raises:
            Refusal: This client has no such glossary, or it is of other languages.
        """
        if not name:
            return None
        glossary = self._find(request, str(name))
        if (glossary.source, glossary.target) != (direction.source, direction.target):
            raise Refusal(400, "the glossary is of other languages")
        return glossary.constraints

    async def glossary_pairs(self, request: Request) -> Response:
        """The languages that a glossary can have."""
        pairs = [
            {"source_lang": one.source, "target_lang": one.target} for one in self.directions.all
        ]
        return JSONResponse({"supported_languages": pairs})

    async def add_glossary(self, request: Request) -> Response:
        """Keep a glossary."""
        asked = await read_parameters(request)
        glossaries = self._glossaries[request.state.client]
        if len(glossaries) >= _MOST_GLOSSARIES:
            raise Refusal(456, f"there are {_MOST_GLOSSARIES} glossaries; delete one")
        source = self.directions.code(str(asked.get("source_lang", "")), self.directions.sources)
        target = self.directions.code(str(asked.get("target_lang", "")), self.directions.targets)
        if source is None or target is None or self.directions.find(source, target) is None:
            raise Refusal(400, "Unsupported glossary source and target language pair")
        entries = parse_entries(
            str(asked.get("entries", "")), str(asked.get("entries_format", "tsv"))
        )
        glossary = Glossary(str(asked.get("name", "")), source, target, entries)
        glossaries[glossary.id] = glossary
        return JSONResponse(glossary.to_json(), 201)

    async def list_glossaries(self, request: Request) -> Response:
        """All glossaries of this client."""
        glossaries = self._glossaries[request.state.client].values()
        return JSONResponse({"glossaries": [glossary.to_json() for glossary in glossaries]})

    async def show_glossary(self, request: Request) -> Response:
        """One glossary without its entries."""
        return JSONResponse(self._find(request, request.path_params["id"]).to_json())

    async def show_entries(self, request: Request) -> Response:
        """The entries of a glossary, as TSV."""
        entries = self._find(request, request.path_params["id"]).entries
        lines = ("\t".join(entry) for entry in entries.items())
        return PlainTextResponse("\n".join(lines), media_type="text/tab-separated-values")

    async def delete_glossary(self, request: Request) -> Response:
        """Forget a glossary."""
        glossary = self._find(request, request.path_params["id"])
        del self._glossaries[request.state.client][glossary.id]
        return Response(status_code=204)

    def _find(self, request: Request, name: str) -> Glossary:
        found = self._glossaries[request.state.client].get(name)
        if found is None:
            raise Refusal(404, "Glossary not found")
        return found
