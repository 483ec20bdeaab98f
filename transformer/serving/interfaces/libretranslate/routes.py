"""The interface of LibreTranslate 1.9: routes, parameters, answers and errors of its clients.

Additions: ``alignment``, ``confidence``, ``attention`` and ``stream`` as parameters of
``/translate``, and the limit of alternatives in ``/frontend/settings``.
"""

from collections.abc import Sequence
from functools import partial
from itertools import starmap
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer.common.language_names import language_name
from transformer.serving.access import Access
from transformer.serving.formats.blocks import Rules
from transformer.serving.formats.documents.document import FORMATS
from transformer.serving.formats.markup import translate_html, visible_texts
from transformer.serving.interfaces.files import Files
from transformer.serving.interfaces.http import (
    Answer,
    Refusal,
    charge,
    endpoint,
    event_stream,
    read_parameters,
    unless_gone,
)
from transformer.serving.interfaces.libretranslate.files import LibreTranslateFiles
from transformer.serving.interfaces.libretranslate.values import (
    NOTHING_DETECTED,
    answer_of,
    exceeds,
    is_set,
    language_values,
    number_of_alternatives,
    options_of,
    texts_of,
)
from transformer.serving.languages.detection import Detected
from transformer.serving.languages.directions import Direction
from transformer.serving.service import TranslationService


class LibreTranslate:
    """Answers as LibreTranslate does."""

    def __init__(self, service: TranslationService, access: Access, files: Files) -> None:
        self.service, self.access = service, access
        self.limits, self.directions = service.limits, service.directions
        self._files = LibreTranslateFiles(
            service, files, check_access=self._check_access, direction=self._direction
        )

    def routes(self) -> list[Route]:
        """All routes of the interface."""

        def route(path: str, answer: Answer, method: str) -> Route:
            return Route(path, endpoint(answer, lambda text: {"error": text}), methods=[method])

        return [
            route("/translate", self.translate, "POST"),
            route("/detect", self.detect, "POST"),
            route("/languages", self.languages, "GET"),
            route("/frontend/settings", self.settings, "GET"),
            route("/suggest", self.no_suggestions, "POST"),
            *starmap(route, self._files.answers()),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate one text or a list of them."""
        asked = await read_parameters(request)
        for name in ("q", "source", "target"):
            if not asked.get(name):
                raise Refusal(400, f"Invalid request: missing {name} parameter")
        texts = texts_of(asked["q"])
        self._check_access(request, asked, len(texts))
        number_of_alternatives(asked.get("alternatives"), self.limits.alternatives)
        self._check_size(texts)
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
            if len(texts) > 1:
                raise Refusal(400, "Invalid request: stream takes one text")
            return await event_stream(request, self.service.stream(texts[0], options), answer)
        translate = partial(translate_html, self.service) if html else self.service.translate
        answers = list(map(answer, await unless_gone(request, translate(texts, options))))
        if not isinstance(asked["q"], list):
            return JSONResponse(answers[0])
        return JSONResponse({name: [one[name] for one in answers] for name in answers[0]})

    async def detect(self, request: Request) -> Response:
        """The languages of a text."""
        asked = await read_parameters(request)
        if not asked.get("q"):
            raise Refusal(400, "Invalid request: missing q parameter")
        [text] = texts_of([asked["q"]])
        self._check_access(request, asked, 1)
        self._check_size([text])
        found = self.service.detector.detect(text) or [NOTHING_DETECTED]
        return JSONResponse([language_values(one) for one in found])

    async def languages(self, request: Request) -> Response:
        """Every source language and its targets."""
        targets = {code: self.directions.targets_of(code) for code in self.directions.sources}
        return JSONResponse(
            [{"code": c, "name": language_name(c), "targets": to} for c, to in targets.items()]
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

    async def no_suggestions(self, request: Request) -> Response:
        """Refuse suggestions: nothing that a client sends is kept."""
        raise Refusal(403, "Suggestions are disabled on this server.")

    def _check_size(self, texts: Sequence[str]) -> None:
        texts_limit, characters = self.limits.texts, self.limits.characters
        if texts_limit is not None and len(texts) > texts_limit:
            raise exceeds(len(texts), texts_limit)
        for text in texts:
            if characters is not None and len(text) > characters:
                raise exceeds(len(text), characters)

    def _check_access(self, request: Request, asked: dict[str, Any], texts: int) -> None:
        key, client = asked.get("api_key"), None
        if self.access.clients is not None:
            if not key:
                raise Refusal(400, "Please contact the server operator to get an API key")
            client = self.access.client(str(key))
            if client is None:
                raise Refusal(403, "Invalid API key")
        charge(request, self.access, client, texts)

    def _direction(
        self, asked: dict[str, Any], texts: Sequence[str]
    ) -> tuple[Detected | None, Direction]:
        """The languages that are asked for; the detected one, where the source is ``auto``."""
        given, form = str(asked["target"]), asked.get("format")
        target = self.directions.code(given, self.directions.targets)
        detected = None
        if asked["source"] == "auto":
            detected = self.service.detect_source(texts, target or "")
        source = self.directions.code(
            detected.language if detected else str(asked["source"]), self.directions.sources
        )
        if source is None:
            raise Refusal(400, f"{asked['source']} is not supported")
        if target is None:
            raise Refusal(400, f"{given} is not supported")
        if form not in (None, "", "text", "html"):
            raise Refusal(400, f"{form} format is not supported")
        direction = self.directions.find(source, target)
        if direction is None:
            here, there = (f"{language_name(code)} ({code})" for code in (source, target))
            raise Refusal(400, f"{there} is not available as a target language from {here}")
        return detected, direction
