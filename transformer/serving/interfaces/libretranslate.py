"""The interface of LibreTranslate 1.9: routes, parameters, answers and errors of its clients.

Additions: ``alignment``, ``confidence``, ``attention`` and ``stream`` as parameters of
``/translate``, and the limit of alternatives and the kinds of sources in ``/frontend/settings``.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer.common.language_names import language_name
from transformer.serving.access import Access
from transformer.serving.batch_translation import Options, SentenceTranslation, TextTranslation
from transformer.serving.formats.documents import FORMATS, translate_document
from transformer.serving.formats.marked_text import translate_texts, visible_texts
from transformer.serving.formats.markup import Rules
from transformer.serving.interfaces import http
from transformer.serving.interfaces.files import Files, Upload, address, attachment
from transformer.serving.languages import Detected, Direction
from transformer.serving.request_queue import RequestQueue

_NOTHING_DETECTED = Detected("en", 0.0)
"""Of a text without a letter."""


class LibreTranslate:
    """The routes of LibreTranslate."""

    def __init__(self, queue: RequestQueue, access: Access, files: Files) -> None:
        self.queue = queue
        self.access = access
        self.limits = queue.limits
        self.directions = queue.directions
        self._files = files
        # Each translated file is in memory.
        self._turns = asyncio.Semaphore(8)

    def routes(self) -> Iterator[Route]:
        for path, method, answer in (
            ("/translate", "POST", self.translate),
            ("/detect", "POST", self.detect),
            ("/languages", "GET", self.languages),
            ("/frontend/settings", "GET", self.settings),
            ("/translate_file", "POST", self.translate_file),
            ("/download_file/{name:path}", "GET", self.download_file),
        ):
            yield Route(path, http.endpoint(answer, "error"), methods=[method])

    async def translate(self, request: Request) -> Response:
        asked = await http.read_parameters(request)
        _require(asked, "q", "source", "target")
        texts = _texts(asked["q"])
        self._check_access(request, asked, len(texts))
        http.check_size(texts, self.limits, 400)
        rules = Rules() if asked.get("format") == "html" else None
        visible = await visible_texts(texts, rules) if asked["source"] == "auto" else texts
        detected, direction = self._direction(asked, visible)
        options = _options(asked, direction, self.limits.alternatives)
        streamed = _is_set(asked.get("stream"))
        streamed = streamed or "text/event-stream" in request.headers.get("accept", "")
        if rules and (options.links or options.confidence or options.attention or streamed):
            raise http.Refusal(
                400, "Invalid request: alignment, confidence, attention and stream take format=text"
            )
        answer = partial(_answer, options=options, detected=detected)
        if streamed:
            sentences = self.queue.stream("\n".join(texts), options)
            return await http.event_stream(request, sentences, answer)
        work = translate_texts(self.queue.translate, texts, options, rules)
        answers = list(map(answer, await http.unless_gone(request, work)))
        if not isinstance(asked["q"], list):
            return JSONResponse(answers[0])
        joined = {key: [values[key] for values in answers] for key in answers[0]}
        return JSONResponse(joined)

    async def translate_file(self, request: Request) -> Response:
        upload = await self._files.read_upload(request)
        _require(upload.parameters, "source", "target")
        self._check_access(request, upload.parameters, 1)
        stored = await http.unless_gone(request, self._translated(request, upload))
        return JSONResponse({"translatedFileUrl": address(request, stored)})

    async def _translated(self, request: Request, upload: Upload) -> str:
        if self._turns.locked():
            raise http.Refusal(429, "Slowdown: too many files are translated", {"Retry-After": "5"})
        async with self._turns, asyncio.timeout(self.limits.seconds):
            document, texts = await self._files.document(upload.data, upload.extension)
            self._check_access(request, upload.parameters, max(0, len(texts) - 1))
            _, direction = self._direction(upload.parameters, texts)
            data = await translate_document(
                self.queue.translate, document, Options(direction), self._files.thread
            )
        name = PurePath(upload.name)
        return await self._files.add(data, f"{name.stem}_{direction.target}{name.suffix}")

    async def download_file(self, request: Request) -> Response:
        stored = request.path_params["name"]
        data = await self._files.read(stored)
        if data is None:
            raise http.Refusal(400, "Invalid filename")
        return attachment(data, stored.partition(".")[2])

    async def detect(self, request: Request) -> Response:
        asked = await http.read_parameters(request)
        _require(asked, "q")
        [text] = _texts([asked["q"]])
        self._check_access(request, asked, 1)
        http.check_size([text], self.limits, 400)
        ranked = self.queue.detector.detect(text) or [_NOTHING_DETECTED]
        return JSONResponse([detected._asdict() for detected in ranked])

    async def languages(self, request: Request) -> Response:
        """Every language and its targets; one that is only a target has none."""
        directions = self.directions
        languages = []
        for code in dict.fromkeys((*directions.sources, *directions.targets)):
            targets = sorted(target for source, target in directions.by_codes if source == code)
            languages.append({"code": code, "name": language_name(code), "targets": targets})
        return JSONResponse(languages)

    async def settings(self, request: Request) -> Response:
        """The settings of a page."""
        code = self.directions.all[0].target
        target = {"code": code, "name": language_name(code)}
        keys = self.access.clients is not None
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
                "sourceKinds": sorted({direction.kind for direction in self.directions.all}),
                "language": {"source": {"code": "auto", "name": "Auto Detect"}, "target": target},
            }
        )

    def _check_access(self, request: Request, asked: dict[str, Any], texts: int) -> None:
        key = str(asked.get("api_key") or "")
        client = self.access.client(key)
        if self.access.clients is not None and client is None:
            if key:
                raise http.Refusal(403, "Invalid API key")
            raise http.Refusal(400, "Please contact the server operator to get an API key")
        http.charge(request, self.access, client, texts)

    def _direction(
        self, asked: dict[str, Any], texts: Sequence[str]
    ) -> tuple[Detected | None, Direction]:
        """The requested direction; for the source ``auto``, also the detected language."""
        self.directions.require_text()
        language = str(asked["source"])
        detected = None
        target = self.directions.code(str(asked["target"]), self.directions.targets)
        if language == "auto":
            detected = self.queue.detect_source(texts, target or "")
            language = detected.language
        source = self.directions.code(language, self.directions.sources)
        if source is None or target is None:
            raise http.Refusal(400, f"{asked['target' if source else 'source']} is not supported")
        text_format = asked.get("format") or "text"
        if text_format not in ("text", "html"):
            raise http.Refusal(400, f"{text_format} format is not supported")
        direction = self.directions.by_codes.get((source, target))
        if direction is None:
            raise http.Refusal(
                400,
                f"{language_name(target)} ({target}) is not available as a target language from "
                f"{language_name(source)} ({source})",
            )
        if detected and not detected.confidence and len(self.directions.sources) > 1:
            detected = _NOTHING_DETECTED
        return detected, direction


def _require(asked: dict[str, Any], *names: str) -> None:
    for name in names:
        if not asked.get(name):
            raise http.Refusal(400, f"Invalid request: missing {name} parameter")


def _texts(q: Any) -> list[str]:
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise http.Refusal(400, "Invalid request: q must be a string or a list of strings")
    return texts


def _is_set(value: Any) -> bool:
    return str(value or "").lower() not in ("", "0", "false", "no", "off")


def _options(asked: Mapping[str, Any], direction: Direction, limit: int) -> Options:
    alternatives = str(asked.get("alternatives") or 0)
    is_number = alternatives.isdecimal() and len(alternatives) < 10
    if not is_number or int(alternatives) > limit:
        wrong = f"must be <= {limit}" if is_number else "is not a number"
        raise http.Refusal(400, f"Invalid request: alternatives parameter {wrong}")
    return Options(
        direction,
        int(alternatives),
        links=_is_set(asked.get("alignment")),
        confidence=_is_set(asked.get("confidence")),
        attention=_is_set(asked.get("attention")),
    )


def _answer(
    translation: TextTranslation, options: Options, detected: Detected | None
) -> dict[str, Any]:
    answer: dict[str, Any] = {"translatedText": translation.text}
    if detected is not None:
        answer["detectedLanguage"] = detected._asdict()
    if options.alternatives:
        answer["alternatives"] = translation.alternatives(options.alternatives)
    if options.direction.marks_failures:
        answer["flags"] = translation.flags
    if options.links or options.confidence or options.attention:
        answer["sentences"] = list(map(_details, translation.sentences))
    return answer


def _details(sentence: SentenceTranslation) -> dict[str, Any]:
    details: dict[str, Any] = {"source": sentence.source, "translation": sentence.text}
    if sentence.links is not None:
        details["alignment"] = [list(link) for link in sentence.links]
    if sentence.confidence is not None:
        details["confidence"] = sentence.confidence
        details["word_confidence"] = sentence.word_confidence
    if sentence.alternatives:
        details["alternatives"] = sentence.alternatives
    if sentence.attention is not None:
        weights = sentence.attention.weights.double()
        details["attention"] = {
            "source_tokens": sentence.attention.source_tokens,
            "tokens": sentence.attention.tokens,
            "weights": [[round(weight, 3) for weight in row] for row in weights.tolist()],
        }
    return details
