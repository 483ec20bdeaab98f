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
from transformer.serving.interfaces.libretranslate_files import LibreTranslateFiles
from transformer.serving.languages.detection import Detected
from transformer.serving.languages.directions import Direction, language_name
from transformer.serving.service import TranslationService
from transformer.serving.translations import Options, TextTranslation

_NOTHING_DETECTED = Detected("en", 0.0)

_FALSE = ("", "0", "false", "no", "off")


class LibreTranslate:
    """Answers as LibreTranslate does.

    Args:
        service: Translates.
        access: Keys and requests a minute.
        files: Of clients.
    """

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
        texts = _texts(asked["q"])
        self._check_access(request, asked, len(texts))
        alternatives = _alternatives(asked.get("alternatives"), self.limits.alternatives)
        self._check_size(texts)
        html = asked.get("format") == "html"
        auto = asked["source"] == "auto"
        seen = await visible_texts(texts, Rules()) if html and auto else texts
        detected, direction = self._direction(asked, seen)
        links, confidence, attention = (
            _flag(asked.get(name)) for name in ("alignment", "confidence", "attention")
        )
        options = Options(
            direction, alternatives, links, confidence=confidence, attention=attention
        )

        def answer(found: TextTranslation) -> dict[str, Any]:
            return _answer(found, options, detected)

        stream = "text/event-stream" in request.headers.get("accept", "")
        stream = stream or _flag(asked.get("stream"))
        if html and (links or confidence or attention or stream):
            wrong = "alignment, confidence, attention and stream take format=text"
            raise Refusal(400, f"Invalid request: {wrong}")
        if stream:
            if len(texts) > 1:
                raise Refusal(400, "Invalid request: stream takes one text")
            return await event_stream(request, self.service.stream(texts[0], options), answer)
        translate = partial(translate_html, self.service) if html else self.service.translate
        found = await unless_gone(request, translate(texts, options))
        answers = list(map(answer, found))
        if not isinstance(asked["q"], list):
            return JSONResponse(answers[0])
        return JSONResponse({name: [one[name] for one in answers] for name in answers[0]})

    async def detect(self, request: Request) -> Response:
        """The languages of a text."""
        asked = await read_parameters(request)
        if not asked.get("q"):
            raise Refusal(400, "Invalid request: missing q parameter")
        [text] = _texts([asked["q"]])
        self._check_access(request, asked, 1)
        self._check_size([text])
        found = self.service.detector.detect(text) or [_NOTHING_DETECTED]
        return JSONResponse([_language(one) for one in found])

    async def languages(self, request: Request) -> Response:
        """Every source language and its targets."""
        return JSONResponse(
            [
                {
                    "code": code,
                    "name": language_name(code),
                    "targets": self.directions.targets_of(code),
                }
                for code in self.directions.sources
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

    async def no_suggestions(self, request: Request) -> Response:
        """Refuse suggestions: nothing that a client sends is kept."""
        raise Refusal(403, "Suggestions are disabled on this server.")

    def _check_size(self, texts: Sequence[str]) -> None:
        texts_limit, characters = self.limits.texts, self.limits.characters
        if texts_limit is not None and len(texts) > texts_limit:
            raise _exceeds(len(texts), texts_limit)
        for text in texts:
            if characters is not None and len(text) > characters:
                raise _exceeds(len(text), characters)

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


def _texts(q: Any) -> list[str]:
    """The texts of the parameter ``q``."""
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise Refusal(400, "Invalid request: q must be a string or a list of strings")
    return texts


def _alternatives(given: Any, limit: int) -> int:
    try:
        number = max(0, int(given or 0))
    except (TypeError, ValueError, OverflowError) as error:
        wrong = "Invalid request: alternatives parameter is not a number"
        raise Refusal(400, wrong) from error
    if number > limit:
        raise Refusal(400, f"Invalid request: alternatives parameter must be <= {limit}")
    return number


def _flag(given: Any) -> bool:
    return str(given or "").lower() not in _FALSE


def _exceeds(size: int, limit: int) -> Refusal:
    return Refusal(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")


def _language(detected: Detected) -> dict[str, Any]:
    return {"confidence": detected.confidence, "language": detected.language}


def _answer(found: TextTranslation, options: Options, detected: Detected | None) -> dict[str, Any]:
    """What the answer says of one text."""
    answer: dict[str, Any] = {"translatedText": found.text}
    if detected is not None:
        answer["detectedLanguage"] = _language(
            detected if detected.confidence else _NOTHING_DETECTED
        )
    if options.alternatives:
        answer["alternatives"] = found.alternatives(options.alternatives)
    if options.links or options.confidence or options.attention:
        answer["sentences"] = [one.to_json() for one in found.sentences]
    return answer
