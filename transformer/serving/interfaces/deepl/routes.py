"""The interface of DeepL, version 2; styles and the context of a text have no effect."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer.common.language_names import language_name
from transformer.serving.access import Access, Client
from transformer.serving.formats.blocks import KEPT, Rules
from transformer.serving.formats.marked_text import translate_texts, visible_texts
from transformer.serving.interfaces import http
from transformer.serving.interfaces.deepl.documents import DeepLDocuments
from transformer.serving.interfaces.deepl.glossaries import DeepLGlossaries
from transformer.serving.interfaces.files import Files
from transformer.serving.request_queue import RequestQueue
from transformer.serving.sentences import Splitting

_SPLITTING: dict[str, Splitting] = {"0": "none", "nonewlines": "punctuation"}

_MOST_TEXTS = 50
"""In a request; more get status 413."""

_MOST_NAMES = 100

_UNLIMITED = 10**12
"""``character_limit``: the clients expect a number."""


class DeepL:
    """The routes of DeepL; ``documents`` are translated in the background."""

    def __init__(self, queue: RequestQueue, access: Access, files: Files) -> None:
        self.queue, self.access = queue, access
        self.directions = queue.directions
        most = min(queue.limits.texts or _MOST_TEXTS, _MOST_TEXTS)
        self._limits = replace(queue.limits, texts=most)
        self._characters: Counter[Client | None] = Counter()
        self._glossaries = DeepLGlossaries(queue)
        self.documents = DeepLDocuments(queue, access, files, self._glossaries, self._characters)

    def routes(self) -> Iterator[Route]:
        glossaries, documents = self._glossaries, self.documents
        for path, method, answer in (
            ("/v2/translate", "POST", self.translate),
            ("/v2/languages", "GET", self.languages),
            ("/v2/usage", "GET", self.usage),
            ("/v2/glossary-language-pairs", "GET", glossaries.pairs),
            ("/v2/glossaries", "GET", glossaries.list_all),
            ("/v2/glossaries", "POST", glossaries.add),
            ("/v2/glossaries/{id}", "GET", glossaries.show),
            ("/v2/glossaries/{id}", "DELETE", glossaries.delete),
            ("/v2/glossaries/{id}/entries", "GET", glossaries.show_entries),
            ("/v2/document", "POST", documents.upload),
            ("/v2/document/{id}", "POST", documents.show),
            ("/v2/document/{id}/result", "POST", documents.download),
        ):
            admitted = http.endpoint(partial(self._admitted, answer), "message")
            yield Route(path, admitted, methods=[method])

    async def _admitted(self, answer: http.Answer, request: Request) -> Response:
        client = None
        if self.access.clients is not None:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            known = scheme.lower() == "deepl-auth-key"
            client = self.access.client(key.strip()) if known else None
            if client is None:
                raise http.Refusal(403, "Wrong or missing key in Authorization: DeepL-Auth-Key KEY")
        request.state.client = client
        http.charge(request, self.access, client, 1)
        return await answer(request)

    async def translate(self, request: Request) -> Response:
        asked = await http.read_parameters(request)
        texts = [given] if isinstance(given := asked.get("text"), str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
            raise http.Refusal(400, "Parameter 'text' not specified.")
        http.check_size(texts, self._limits, 413)
        http.charge(request, self.access, request.state.client, len(texts) - 1)
        rules = _tag_rules(asked)
        seen = texts if asked.get("source_lang") else await visible_texts(texts, rules)
        splitting = _SPLITTING.get(str(asked.get("split_sentences")), "sentences")
        options = replace(self._glossaries.options(request, asked, seen), splitting=splitting)
        work = translate_texts(self.queue.translate, texts, options, rules)
        found = await http.unless_gone(request, work)
        self._characters[request.state.client] += sum(map(len, texts))
        source = options.direction.source.upper()
        answers = [
            {"detected_source_language": source, "text": one.text, "billed_characters": len(text)}
            for text, one in zip(texts, found, strict=True)
        ]
        return JSONResponse({"translations": answers})

    async def languages(self, request: Request) -> Response:
        target = (await http.read_parameters(request)).get("type") == "target"
        codes = self.directions.targets if target else self.directions.sources
        more = {"supports_formality": False} if target else {}
        return JSONResponse(
            [{"language": code.upper(), "name": language_name(code), **more} for code in codes]
        )

    async def usage(self, request: Request) -> Response:
        """Characters of this client since the server started."""
        count = self._characters[request.state.client]
        return JSONResponse({"character_count": count, "character_limit": _UNLIMITED})


def _tag_rules(asked: Mapping[str, Any]) -> Rules | None:
    kind = asked.get("tag_handling")
    if not kind:
        return None
    if kind not in ("html", "xml"):
        raise http.Refusal(400, "tag_handling must be html or xml")
    kept = _names(asked, "ignore_tags")
    if kind == "html":
        return Rules(kept=KEPT | {name.lower() for name in kept})
    return Rules(
        xml=True,
        kept=kept,
        splitting=_names(asked, "splitting_tags"),
        outline=str(asked.get("outline_detection", "1")).lower() not in ("0", "false"),
        inline=_names(asked, "non_splitting_tags"),
    )


def _names(asked: Mapping[str, Any], parameter: str) -> frozenset[str]:
    given = asked.get(parameter)
    parts = given if isinstance(given, list) else [given or ""]
    names = frozenset(name.strip() for part in parts for name in str(part).split(",")) - {""}
    if len(names) > _MOST_NAMES:
        raise http.Refusal(400, f"{parameter} may have {_MOST_NAMES} names, not {len(names)}")
    return names
