"""Documents of DeepL: uploaded, translated in the background, and downloaded."""

import asyncio
import hmac
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transformer.common.errors import InputError
from transformer.serving.access import Access, Client
from transformer.serving.batch_translation import Options
from transformer.serving.formats.documents.document import translate_document
from transformer.serving.interfaces.deepl.glossaries import DeepLGlossaries
from transformer.serving.interfaces.files import MOST_FILES, Files, attachment
from transformer.serving.interfaces.http import Refusal, charge, read_parameters, refusal_of
from transformer.serving.request_queue import RequestQueue

_MOST_WAITING = 20
"""Unfinished documents of a client."""

_MOST_AT_ONCE = 2
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
        self._queue, self._access, self._files = queue, access, files
        self._glossaries, self._characters = glossaries, characters
        self._documents: dict[str, _Document] = {}
        self._receiving: Counter[Client | None] = Counter()
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    async def upload(self, request: Request) -> Response:
        """Store a document and begin its translation, or refuse it at once."""
        client = request.state.client
        own = (one for one in self._documents.values() if one.client == client)
        unfinished = sum(not one.work.done() for one in own)
        if self._receiving[client] + unfinished >= _MOST_WAITING:
            raise Refusal(429, f"{_MOST_WAITING} documents wait already", {"Retry-After": "10"})
        self._receiving[client] += 1
        try:
            return await self._accept(request)
        finally:
            self._receiving[client] -= 1

    async def _accept(self, request: Request) -> Response:
        upload = await self._files.read_upload(request)
        asked, client = upload.parameters, request.state.client
        if asked.get("output_format") not in (None, "", upload.extension[1:]):
            raise Refusal(400, "output_format must be that of the document")
        # The document itself may be large: it is read again in its turn.
        texts = (await self._files.document(upload.data, upload.extension))[1]
        charge(request, self._access, client, max(0, len(texts) - 1))
        options = self._glossaries.options(request, asked, texts)
        stored = await self._files.add(upload.data, upload.name)
        document = _Document(client, stored, upload.name, sum(map(len, texts)))
        document.work = asyncio.create_task(self._translate(document, upload.extension, options))
        self._documents[document.id] = document
        finished = [one for one in self._documents.values() if one.work.done()]
        for old in finished[: max(0, len(self._documents) - MOST_FILES)]:
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
                read, _ = await self._files.document(data, extension)
                found = await translate_document(
                    self._queue.translate, read, options, self._files.thread, patient=True
                )
            self._files.remove(document.stored)
            document.stored = await self._files.add(found, document.name)
            document.status = "done"
            self._characters[document.client] += document.characters
        except Exception as error:
            document.status, document.message = "error", refusal_of(error).detail
        asyncio.get_running_loop().call_later(seconds, self._documents.pop, document.id, None)

    async def show(self, request: Request) -> Response:
        """The status of a document, at once when it is done."""
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
            wrong = document.message or "The document is not translated yet"
            raise Refusal(400 if document.message else 503, wrong, {"Retry-After": "1"})
        data = await self._files.read(document.stored)
        if data is None:
            raise Refusal(*_NOT_FOUND)
        return attachment(data, document.name)

    async def _find(self, request: Request) -> _Document:
        """The document of a request that has its key, and is of its client."""
        key = str((await read_parameters(request)).get("document_key", ""))
        found = self._documents.get(request.path_params["id"])
        known = found is not None and hmac.compare_digest(key.encode(), found.key.encode())
        if found is None or not known or found.client != request.state.client:
            raise Refusal(*_NOT_FOUND)
        return found

    async def close(self) -> None:
        tasks = [document.work for document in self._documents.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
