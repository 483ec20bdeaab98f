"""The interface of DeepL, version 2: texts, glossaries and documents.

Styles and the context of a text have no effect. Glossaries and documents belong to one client, and
are gone when the server ends. Documents are uploaded, translated in the background, and downloaded.
"""

import asyncio
import csv
import hmac
import io
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from transformer.common.errors import InputError
from transformer.common.language_names import language_name
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.constraints.terms import Glossary
from transformer.serving.access import Access, Client
from transformer.serving.batch_translation import Options, TextTranslation
from transformer.serving.formats.documents import translate_document
from transformer.serving.formats.marked_text import translate_texts, visible_texts
from transformer.serving.formats.markup import KEPT, Rules
from transformer.serving.interfaces import http
from transformer.serving.interfaces.files import MAX_FILES, Files, attachment
from transformer.serving.interfaces.http import Refusal, charge, read_parameters, refusal_of
from transformer.serving.request_queue import RequestQueue
from transformer.serving.sentences import Splitting

_SPLITTING: dict[str, Splitting] = {"0": "none", "nonewlines": "punctuation"}

_MAX_TEXTS = 50
"""In a request; more get status 413."""

_MAX_NAMES = 100

_UNLIMITED = 10**12
"""``character_limit``: the clients expect a number."""


class DeepL:
    """The routes of DeepL; ``documents`` are translated in the background."""

    def __init__(self, queue: RequestQueue, access: Access, files: Files) -> None:
        self.queue = queue
        self.access = access
        self.directions = queue.directions
        max_texts = min(queue.limits.texts or _MAX_TEXTS, _MAX_TEXTS)
        self._limits = replace(queue.limits, texts=max_texts)
        self._characters: Counter[Client | None] = Counter()
        self._glossaries = DeepLGlossaries(queue)
        self.documents = DeepLDocuments(queue, access, files, self._glossaries, self._characters)

    def routes(self) -> Iterator[Route]:
        glossaries = self._glossaries
        documents = self.documents
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
            if scheme.lower() == "deepl-auth-key":
                client = self.access.client(key.strip())
            if client is None:
                raise http.Refusal(403, "Wrong or missing key in Authorization: DeepL-Auth-Key KEY")
        request.state.client = client
        http.charge(request, self.access, client, 1)
        return await answer(request)

    async def translate(self, request: Request) -> Response:
        asked = await http.read_parameters(request)
        texts = asked.get("text")
        if isinstance(texts, str):
            texts = [texts]
        is_list = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        if not is_list or not texts:
            raise http.Refusal(400, "Parameter 'text' not specified.")
        http.check_size(texts, self._limits, 413)
        http.charge(request, self.access, request.state.client, len(texts) - 1)
        rules = _tag_rules(asked)
        options = await self._options(request, asked, texts, rules)
        work = self._translated(texts, options, rules)
        translations = await http.unless_gone(request, work)
        self._characters[request.state.client] += sum(map(len, texts))
        answers = [
            {
                "detected_source_language": each.direction.source.upper(),
                "text": translation.text,
                "billed_characters": len(text),
            }
            for text, each, translation in zip(texts, options, translations, strict=True)
        ]
        return JSONResponse({"translations": answers})

    async def _options(
        self,
        request: Request,
        asked: Mapping[str, Any],
        texts: Sequence[str],
        rules: Rules | None,
    ) -> list[Options]:
        """The options of each text; the language of each is detected, unless it is given.

        A glossary is of one language, so the texts are, too. A text without letters has the
        language of all.
        """
        splitting = _SPLITTING.get(str(asked.get("split_sentences")), "sentences")
        visible = texts if asked.get("source_lang") else await visible_texts(texts, rules)
        has_one_language = bool(asked.get("source_lang") or asked.get("glossary_id"))
        samples = [visible]
        if not has_one_language:
            samples = [[text] if any(map(str.isalpha, text)) else visible for text in visible]

        def options() -> list[Options]:
            found = [self._glossaries.options(request, asked, sample) for sample in samples]
            return [replace(each, splitting=splitting) for each in found]

        # In a thread: the detection in many texts must not block other clients.
        found = await asyncio.to_thread(options)
        return found * len(texts) if has_one_language else found

    async def _translated(
        self, texts: Sequence[str], options: Sequence[Options], rules: Rules | None
    ) -> list[TextTranslation]:
        by_options: defaultdict[Options, list[int]] = defaultdict(list)
        for index, each in enumerate(options):
            by_options[each].append(index)
        tasks = [
            asyncio.ensure_future(
                translate_texts(self.queue.translate, [texts[i] for i in indices], each, rules)
            )
            for each, indices in by_options.items()
        ]
        try:
            translated = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        translations: dict[int, TextTranslation] = {}
        for indices, group in zip(by_options.values(), translated, strict=True):
            translations |= zip(indices, group, strict=True)
        return [translations[index] for index in range(len(texts))]

    async def languages(self, request: Request) -> Response:
        asked = await http.read_parameters(request)
        target = asked.get("type") == "target"
        codes = self.directions.targets if target else self.directions.sources
        answers: list[dict[str, Any]] = []
        for code in codes:
            answers.append({"language": code.upper(), "name": language_name(code)})
            if target:
                answers[-1]["supports_formality"] = False
        return JSONResponse(answers)

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
    value = asked.get(parameter)
    lists = value if isinstance(value, list) else [value or ""]
    names = frozenset(name.strip() for part in lists for name in str(part).split(",")) - {""}
    if len(names) > _MAX_NAMES:
        raise http.Refusal(400, f"{parameter} may have {_MAX_NAMES} names, not {len(names)}")
    return names


_DIALECTS: dict[str, Any] = {"csv": {}, "tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE}}

_MAX_GLOSSARIES = 100
"""Of a client."""

_MAX_ENTRIES = 1000
_MAX_PHRASE = 100
_MAX_TERMS = 8
"""Of one sentence: each of their subwords widens the beam of its search."""


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
            if not source or not target or max(map(len, row[:2])) > _MAX_PHRASE:
                raise ValueError(f"a phrase must have 1 to {_MAX_PHRASE} characters")
            Constraints(must=(target,))
            entries[source] = target
        if not 0 < len(entries) <= _MAX_ENTRIES:
            raise ValueError(f"it must have 1 to {_MAX_ENTRIES} entries")
    except (KeyError, ValueError, csv.Error) as error:
        raise InputError(f"The glossary is no {form} of SOURCE and TARGET: {error}") from error
    return entries


class DeepLGlossaries:
    """The glossaries of all clients, and their routes."""

    def __init__(self, queue: RequestQueue) -> None:
        self.queue = queue
        self.directions = queue.directions
        self._glossaries: defaultdict[Client | None, dict[str, NamedGlossary]] = defaultdict(dict)

    def options(self, request: Request, asked: Mapping[str, Any], texts: Sequence[str]) -> Options:
        """The requested direction and the constraints of the glossary; Refusal if there is none."""
        self.directions.require_text()
        if asked.get("formality") in ("more", "less"):
            raise Refusal(400, "formality is not supported for this language")
        target = self.directions.code(str(asked.get("target_lang", "")), self.directions.targets)
        language = asked.get("source_lang")
        if not language:
            language = self.queue.detect_source(texts, target or "").language
        source = self.directions.code(str(language), self.directions.sources)
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
        return Options(direction, constrain=partial(glossary.constraints, most=_MAX_TERMS))

    async def pairs(self, request: Request) -> Response:
        pairs = [
            {"source_lang": direction.source, "target_lang": direction.target}
            for direction in self.directions.all
        ]
        return JSONResponse({"supported_languages": pairs})

    async def add(self, request: Request) -> Response:
        asked = await read_parameters(request)
        glossaries = self._glossaries[request.state.client]
        if len(glossaries) >= _MAX_GLOSSARIES:
            raise Refusal(456, f"there are {_MAX_GLOSSARIES} glossaries; delete one")
        source = self.directions.code(str(asked.get("source_lang", "")), self.directions.sources)
        target = self.directions.code(str(asked.get("target_lang", "")), self.directions.targets)
        if source is None or target is None or (source, target) not in self.directions.by_codes:
            raise Refusal(400, "Unsupported glossary source and target language pair")
        if self.directions.by_codes[source, target].translator.search.algorithm != "beam":
            raise Refusal(400, "glossaries need a server of decoding=beam")
        glossary = NamedGlossary(
            entries=parse_entries(
                str(asked.get("entries", "")), str(asked.get("entries_format", "tsv"))
            ),
            name=str(asked.get("name", "")),
            source=source,
            target=target,
        )
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
        glossary = self._glossaries[request.state.client].get(name or request.path_params["id"])
        if glossary is None:
            raise Refusal(404, "Glossary not found")
        return glossary


_MAX_WAITING = 20
"""Unfinished documents of a client."""

_MAX_AT_ONCE = 2
"""Documents in memory; others wait on the disk."""

_ANSWER_SECONDS = 2.0
"""The status waits so long for a document: the client would ask again after 5 seconds."""

_NOT_FOUND = (404, "Document not found")


@dataclass
class _Document:
    """A document of a client; ``stored`` is the source until it is done, then the translation."""

    client: Client | None
    stored: str
    name: str
    characters: int
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    key: str = field(default_factory=lambda: secrets.token_hex(32))
    status: str = "queued"
    message: str = ""
    work: "asyncio.Task[None]" = field(init=False)


class DeepLDocuments:
    """Translates documents in the background, and counts the characters of those that are done."""

    def __init__(
        self,
        queue: RequestQueue,
        access: Access,
        files: Files,
        glossaries: DeepLGlossaries,
        characters: Counter[Client | None],
    ) -> None:
        self._queue = queue
        self._access = access
        self._files = files
        self._glossaries = glossaries
        self._characters = characters
        self._documents: dict[str, _Document] = {}
        self._receiving: Counter[Client | None] = Counter()
        self._turns = asyncio.Semaphore(_MAX_AT_ONCE)

    async def upload(self, request: Request) -> Response:
        """Store a document and begin its translation, or refuse it at once."""
        client = request.state.client
        unfinished = sum(
            document.client == client and not document.work.done()
            for document in self._documents.values()
        )
        if self._receiving[client] + unfinished >= _MAX_WAITING:
            raise Refusal(429, f"{_MAX_WAITING} documents wait already", {"Retry-After": "10"})
        self._receiving[client] += 1
        try:
            return await self._accept(request)
        finally:
            self._receiving[client] -= 1

    async def _accept(self, request: Request) -> Response:
        upload = await self._files.read_upload(request)
        asked = upload.parameters
        client = request.state.client
        if asked.get("output_format") not in (None, "", upload.extension[1:]):
            raise Refusal(400, "output_format must be that of the document")
        # The document itself may be large: it is read again in its turn.
        _, texts = await self._files.document(upload.data, upload.extension)
        charge(request, self._access, client, max(0, len(texts) - 1))
        options = self._glossaries.options(request, asked, texts)
        stored = await self._files.add(upload.data, upload.name)
        document = _Document(client, stored, upload.name, sum(map(len, texts)))
        document.work = asyncio.create_task(self._translate(document, upload.extension, options))
        self._documents[document.id] = document
        finished = [known for known in self._documents.values() if known.work.done()]
        for old in finished[: max(0, len(self._documents) - MAX_FILES)]:
            self._files.remove(old.stored)
            del self._documents[old.id]
        return JSONResponse({"document_id": document.id, "document_key": document.key})

    async def _translate(self, document: _Document, extension: str, options: Options) -> None:
        seconds = self._queue.limits.file_seconds
        try:
            async with asyncio.timeout(seconds), self._turns:
                document.status = "translating"
                data = await self._files.read(document.stored)
                if data is None:
                    raise InputError("the document was deleted, since too many others wait")
                source, _ = await self._files.document(data, extension)
                translated = await translate_document(
                    self._queue.translate, source, options, self._files.thread, patient=True
                )
            self._files.remove(document.stored)
            document.stored = await self._files.add(translated, document.name)
            document.status = "done"
            self._characters[document.client] += document.characters
        except Exception as error:
            document.status = "error"
            document.message = refusal_of(error).detail
        asyncio.get_running_loop().call_later(seconds, self._documents.pop, document.id, None)

    async def show(self, request: Request) -> Response:
        """The status of a document; waits a moment for one that is not done."""
        document = await self._find(request)
        await asyncio.wait({document.work}, timeout=_ANSWER_SECONDS)
        answer: dict[str, Any] = {"document_id": document.id, "status": document.status}
        if document.status == "done":
            answer["billed_characters"] = document.characters
        if document.status == "error":
            answer["error_message"] = document.message
        return JSONResponse(answer)

    async def download(self, request: Request) -> Response:
        document = await self._find(request)
        if document.status != "done":
            reason = document.message or "The document is not translated yet"
            raise Refusal(400 if document.message else 503, reason, {"Retry-After": "1"})
        data = await self._files.read(document.stored)
        if data is None:
            raise Refusal(*_NOT_FOUND)
        return attachment(data, document.name)

    async def _find(self, request: Request) -> _Document:
        """The document of a request; Refusal if the key or the client is wrong."""
        key = str((await read_parameters(request)).get("document_key", ""))
        document = self._documents.get(request.path_params["id"])
        if document is None or not hmac.compare_digest(key.encode(), document.key.encode()):
            raise Refusal(*_NOT_FOUND)
        if document.client != request.state.client:
            raise Refusal(*_NOT_FOUND)
        return document

    async def close(self) -> None:
        tasks = [document.work for document in self._documents.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
