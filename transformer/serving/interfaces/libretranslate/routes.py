"""The interface of LibreTranslate 1.9: routes, parameters, answers and errors of its clients.

Additions: ``alignment``, ``confidence``, ``attention`` and ``stream`` as parameters of
``/translate``, and the limit of alternatives in ``/frontend/settings``.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer.common.language_names import language_name
from transformer.serving.access import Access
from transformer.serving.formats.blocks import Rules
from transformer.serving.formats.documents.document import FORMATS, translate_document
from transformer.serving.formats.markup import translate_html, visible_texts
from transformer.serving.interfaces.files import Files, Upload, attachment
from transformer.serving.interfaces.http import (
    Answer,
    Refusal,
    charge,
    check_size,
    endpoint,
    event_stream,
    read_parameters,
    unless_gone,
)
from transformer.serving.interfaces.libretranslate.values import (
    NOTHING_DETECTED,
    answer_of,
    is_set,
    options_of,
    texts_of,
)
from transformer.serving.languages.detection import Detected
from transformer.serving.languages.directions import Direction
from transformer.serving.service import TranslationService
from transformer.serving.translations import Options

_MOST_AT_ONCE = 8
"""Files in memory."""


class LibreTranslate:
    """The routes of LibreTranslate."""

    def __init__(self, service: TranslationService, access: Access, files: Files) -> None:
        self.service, self.access = service, access
        self.limits, self.directions = service.limits, service.directions
        self._files = files
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    def routes(self) -> list[Route]:
        """All routes of the interface."""

        def route(path: str, answer: Answer, method: str) -> Route:
            return Route(path, endpoint(answer, "error"), methods=[method])

        return [
            route("/translate", self.translate, "POST"),
            route("/detect", self.detect, "POST"),
            route("/languages", self.languages, "GET"),
            route("/frontend/settings", self.settings, "GET"),
            route("/translate_file", self.translate_file, "POST"),
            route("/download_file/{name:path}", self.download_file, "GET"),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate one text or a list of them."""
        asked = await read_parameters(request)
        _require(asked, "q", "source", "target")
        texts = texts_of(asked["q"])
        self._check_access(request, asked, len(texts))
        check_size(texts, self.limits, 400)
        html = asked.get("format") == "html"
        auto = asked["source"] == "auto"
        seen = await visible_texts(texts, Rules()) if html and auto else texts
        detected, direction = self._direction(asked, seen)
        options = options_of(asked, direction, self.limits.alternatives)
        streamed = is_set(asked.get("stream"))
        streamed = streamed or "text/event-stream" in request.headers.get("accept", "")
        if html and (options.links or options.confidence or options.attention or streamed):
            wrong = "alignment, confidence, attention and stream take format=text"
            raise Refusal(400, f"Invalid request: {wrong}")
        answer = partial(answer_of, options=options, detected=detected)
        if streamed:
            text = "\n".join(texts)
            return await event_stream(request, self.service.stream(text, options), answer)
        translate = partial(translate_html, self.service) if html else self.service.translate
        answers = list(map(answer, await unless_gone(request, translate(texts, options))))
        if not isinstance(asked["q"], list):
            return JSONResponse(answers[0])
        return JSONResponse({name: [one[name] for one in answers] for name in answers[0]})

    async def translate_file(self, request: Request) -> Response:
        """Translate a file; the answer has the address of the translation."""
        upload = await self._files.read_upload(request)
        _require(upload.parameters, "source", "target")
        self._check_access(request, upload.parameters, 1)
        stored = await unless_gone(request, self._translated(request, upload))
        return JSONResponse({"translatedFileUrl": _address(request, stored)})

    async def _translated(self, request: Request, upload: Upload) -> str:
        """The name of the stored translation."""
        if self._turns.locked():
            raise Refusal(429, "Slowdown: too many files are translated", {"Retry-After": "5"})
        async with self._turns, asyncio.timeout(self.limits.seconds):
            document, texts = await self._files.document(upload.data, upload.extension)
            self._check_access(request, upload.parameters, max(0, len(texts) - 1))
            _, direction = self._direction(upload.parameters, texts)
            data = await translate_document(
                self.service, document, Options(direction), self._files.thread
            )
        name = PurePath(upload.name)
        return await self._files.add(data, f"{name.stem}_{direction.target}{name.suffix}")

    async def download_file(self, request: Request) -> Response:
        """A translated file."""
        stored = request.path_params["name"]
        data = await self._files.read(stored)
        if data is None:
            raise Refusal(400, "Invalid filename")
        return attachment(data, stored.partition(".")[2])

    async def detect(self, request: Request) -> Response:
        """The languages of a text."""
        asked = await read_parameters(request)
        _require(asked, "q")
        [text] = texts_of([asked["q"]])
        self._check_access(request, asked, 1)
        check_size([text], self.limits, 400)
        found = self.service.detector.detect(text) or [NOTHING_DETECTED]
        return JSONResponse([one._asdict() for one in found])

    async def languages(self, request: Request) -> Response:
        """Every language and its targets; one that is only a target has none."""
        known = self.directions
        codes = dict.fromkeys((*known.sources, *known.targets))
        targets = {code: sorted(t for s, t in known.by_codes if s == code) for code in codes}
        return JSONResponse(
            [
                {"code": code, "name": language_name(code), "targets": found}
                for code, found in targets.items()
            ]
        )

    async def settings(self, request: Request) -> Response:
        """What a page must know."""
        first = self.directions.all[0]
        keys = self.access.clients is not None
        auto = {"code": "auto", "name": "Auto Detect"}
        target = {"code": first.target, "name": language_name(first.target)}
        return JSONResponse(
            {
                "charLimit": self.limits.characters or -1,
                "frontendTimeout": 500,
                "apiKeys": keys,
                "keyRequired": keys,
                "alternatives": self.limits.alternatives,
                "suggestions": False,
                "filesTranslation": self.limits.file_bytes is not None,
                "supportedFilesFormat": list(FORMATS),
                "language": {"source": auto, "target": target},
            }
        )

    def _check_access(self, request: Request, asked: dict[str, Any], texts: int) -> None:
        key = str(asked.get("api_key") or "")
        client = self.access.client(key)
        if self.access.clients is not None and client is None:
            missing = 400, "Please contact the server operator to get an API key"
            raise Refusal(*((403, "Invalid API key") if key else missing))
        charge(request, self.access, client, texts)

    def _direction(
        self, asked: dict[str, Any], texts: Sequence[str]
    ) -> tuple[Detected | None, Direction]:
        """The requested direction; for the source ``auto``, also the detected language."""
        given, detected = str(asked["source"]), None
        target = self.directions.code(str(asked["target"]), self.directions.targets)
        if given == "auto":
            detected = self.service.detect_source(texts, target or "")
            given = detected.language
        source = self.directions.code(given, self.directions.sources)
        if source is None or target is None:
            raise Refusal(400, f"{asked['target' if source else 'source']} is not supported")
        if (form := asked.get("format") or "text") not in ("text", "html"):
            raise Refusal(400, f"{form} format is not supported")
        direction = self.directions.by_codes.get((source, target))
        if direction is None:
            here, there = (f"{language_name(code)} ({code})" for code in (source, target))
            raise Refusal(400, f"{there} is not available as a target language from {here}")
        if detected and not detected.confidence and len(self.directions.sources) > 1:
            detected = NOTHING_DETECTED
        return detected, direction


def _require(asked: dict[str, Any], *names: str) -> None:
    if missing := [name for name in names if not asked.get(name)]:
        raise Refusal(400, f"Invalid request: missing {missing[0]} parameter")


def _address(request: Request, stored: str) -> str:
    """The address of a stored file, behind a web server that forwards requests."""
    scheme = request.headers.get("x-forwarded-proto", request.url.scheme)
    host = request.headers.get("x-forwarded-host", request.url.netloc)
    prefix = request.headers.get("x-forwarded-prefix", "").rstrip("/")
    return f"{scheme}://{host}{prefix}/download_file/{quote(stored)}"
