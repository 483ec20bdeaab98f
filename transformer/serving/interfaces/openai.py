"""The interface of OpenAI for sound: ``/v1/audio/transcriptions`` and ``/v1/audio/translations``.

A model writes its own target language: ``language`` and, of ``/translations``, English choose among
several models. Whisper's models write every sound down in its language, which they detect without
``language``, and translate it into English. ``model`` may name a direction, such as ``sound-de``,
that ``/v1/models`` lists; other names are those of OpenAI. The prompt has no effect. Segments are
the windows that the model reads; words have none.
"""

import asyncio
import math
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from transformer.common.errors import InputError, some_of
from transformer.common.language_names import language_name
from transformer.data.features.audio import sound_seconds
from transformer.data.features.read_source import ReadSource
from transformer.data.features.reference import Reference
from transformer.data.tokenization.tags import TRANSLATES_TO
from transformer.decoding.long_inputs import join_parts, source_windows
from transformer.decoding.subtitles import subtitles
from transformer.decoding.translator import TimedText
from transformer.serving.access import Access
from transformer.serving.batch_translation import Options, SentenceTranslation
from transformer.serving.interfaces import http
from transformer.serving.interfaces.files import Files
from transformer.serving.languages import Direction
from transformer.serving.request_queue import RequestQueue

_FORMATS = ("json", "text", "srt", "verbose_json", "vtt")

_SOUNDS = 8
"""Requests whose sound is in memory together."""

_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class _Wrong(http.Refusal):
    """A parameter that cannot be served; ``param`` is its name."""

    def __init__(self, param: str, message: str, status: int = 400) -> None:
        super().__init__(status, message)
        self.param = param


@dataclass(frozen=True)
class _Asked:
    """The parameters of a request, checked."""

    direction: Direction
    form: str
    temperature: float


@dataclass(frozen=True)
class _Segment:
    """A window of a sound in seconds, and its text."""

    start: float
    end: float
    translation: SentenceTranslation

    @property
    def text(self) -> str:
        return self.translation.text


@dataclass(frozen=True)
class _Transcript:
    """Seconds of a sound, the language of its text, and its windows."""

    duration: float
    language: str
    segments: Sequence[_Segment]


class OpenAI:
    """The routes of OpenAI for sound."""

    def __init__(self, queue: RequestQueue, access: Access, files: Files) -> None:
        self.queue = queue
        self.access = access
        self.limits = queue.limits
        self._files = files
        self._turns = asyncio.Semaphore(_SOUNDS)
        self._directions = [one for one in queue.directions.all if one.kind == "speech"]
        self._started = int(time.time())

    def routes(self) -> Iterator[Route]:
        for task in ("transcriptions", "translations"):
            answer = _endpoint(partial(self._heard, task))
            yield Route(f"/v1/audio/{task}", answer, methods=["POST"])
        yield Route("/v1/models", _endpoint(self._models), methods=["GET"])
        yield Route("/v1/models/{id}", _endpoint(self._model), methods=["GET"])

    def _admit(self, request: Request) -> None:
        client = None
        if self.access.clients is not None:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            client = self.access.client(key.strip()) if scheme.lower() == "bearer" else None
            if client is None:
                raise http.Refusal(401, "Incorrect API key: send Authorization: Bearer KEY")
        http.charge(request, self.access, client, 1)

    async def _models(self, request: Request) -> Response:
        self._admit(request)
        models = list(map(self._described, self._directions))
        return JSONResponse({"object": "list", "data": models})

    async def _model(self, request: Request) -> Response:
        self._admit(request)
        named = self._named(request.path_params["id"])
        if not named:
            raise _Wrong("model", "There is no such model; GET /v1/models lists them", 404)
        return JSONResponse(self._described(named[0]))

    def _described(self, direction: Direction) -> dict[str, Any]:
        return {
            "id": _name(direction),
            "object": "model",
            "created": self._started,
            "owned_by": "transformer",
        }

    def _named(self, model: str) -> list[Direction]:
        return [one for one in self._directions if _name(one) == model.lower()]

    async def _heard(self, task: str, request: Request) -> Response:
        self._admit(request)
        if not self._directions:
            raise http.Refusal(404, "No model of this server reads sound; send text to /translate")
        if self.limits.file_bytes is None:
            raise http.Refusal(403, "This server takes no files")
        # A slow client keeps nobody else's turn while it sends.
        async with request.form(max_files=1) as form:
            asked = self._asked(task, form)
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise _Wrong("file", "file is missing; send a sound as multipart/form-data")
            name = PurePath(str(file.filename or "")).name or "file"
            if self._turns.locked():
                raise http.Refusal(429, "Slowdown: too many sounds wait", {"Retry-After": "5"})
            async with self._turns:
                work = self._transcript(file.file, name, asked)
                transcript = await http.unless_gone(request, work)
        return _answer(task, asked, transcript)

    def _asked(self, task: str, form: FormData) -> _Asked:
        def value(name: str) -> str:
            given = form.get(name)
            return given.strip() if isinstance(given, str) else ""

        if not value("model"):
            raise _Wrong("model", "model is missing; any name will do, such as whisper-1")
        form_of_answer = value("response_format") or "json"
        if form_of_answer not in _FORMATS:
            raise _Wrong(
                "response_format",
                f"response_format {form_of_answer!r} is not one of {', '.join(_FORMATS)}",
            )
        if value("stream").lower() in ("true", "1"):
            raise _Wrong("stream", "answers are not streamed; leave out stream")
        granularities = [*form.getlist("timestamp_granularities[]")]
        granularities += form.getlist("timestamp_granularities")
        if any(one != "segment" for one in granularities):
            raise _Wrong(
                "timestamp_granularities", "timestamp_granularities: only segments have times here"
            )
        if granularities and form_of_answer != "verbose_json":
            raise _Wrong(
                "timestamp_granularities",
                "timestamp_granularities needs response_format=verbose_json",
            )
        try:
            temperature = float(value("temperature") or 0)
        except ValueError:
            temperature = math.nan
        if not 0 <= temperature <= 1:
            raise _Wrong("temperature", "temperature must be a number from 0 to 1")
        direction = self._direction(task, value("model"), value("language"))
        return _Asked(direction, form_of_answer, round(temperature, 1))

    def _direction(self, task: str, model: str, language: str) -> Direction:
        named = self._named(model)
        directions = named or self._directions
        code = None
        if task == "transcriptions" and language:
            written = [
                {direction.target: None, **direction.sound_languages} for direction in directions
            ]
            known = list(dict.fromkeys(chain.from_iterable(written)))
            code = self.queue.directions.code(language, known)
            if code is None:
                raise _Wrong(
                    "language",
                    f"language {language!r} is not written by a model here; one of "
                    f"{some_of(known)} is",
                )
            directions = [
                direction
                for direction, codes in zip(directions, written, strict=True)
                if code in codes
            ]
        elif task == "translations":
            english = [
                direction
                for direction in directions
                if direction.target.partition("-")[0] == TRANSLATES_TO or direction.sound_languages
            ]
            directions = english or directions
        # A model such as Whisper's writes a sound down from its language to the same.
        writes_down = task == "transcriptions"
        direction = min(
            directions, key=lambda each: (each.source == each.target) is not writes_down
        )
        languages = direction.sound_languages
        if not languages:
            return direction
        if task == "translations":
            return direction.between(direction.tags.source if named else None, TRANSLATES_TO)
        if code is not None:
            return direction.between(languages[code], None)
        return direction if named else direction.between(None, None)

    async def _transcript(self, upload: BinaryIO, name: str, asked: _Asked) -> _Transcript:
        async with asyncio.timeout(self.limits.seconds):
            loop = asyncio.get_running_loop()
            read = partial(self._read, upload, name, asked.direction)
            source = await loop.run_in_executor(self._files.thread, read)
        translator = asked.direction.translator
        window = translator.tokenizer.vector_source.extractor.window
        windows = source_windows(source, translator.limits, window)
        direction = asked.direction
        if asked.temperature:
            direction = direction.sampled(asked.temperature)
        # The first window tells the language of the others.
        detects = bool(direction.sound_languages) and direction.tags.source is None
        parts = windows[:1] if detects else windows
        translations = await self.queue.translate_read(parts, Options(direction))
        if detects:
            direction = direction.between(translations[0].language, direction.tags.target)
            translations += await self.queue.translate_read(windows[1:], Options(direction))
        assert source.times is not None
        segments = []
        for window_of, translation in zip(windows, translations, strict=True):
            assert window_of.times is not None
            segments.append(_Segment(window_of.times.start, window_of.times.end, translation))
        return _Transcript(source.times.end, direction.target, segments)

    def _read(self, upload: BinaryIO, name: str, direction: Direction) -> ReadSource:
        """The vectors of an uploaded sound, in pieces: its samples are never in memory at once."""
        with TemporaryDirectory(prefix="transformer-sound-") as folder:
            path = Path(folder, "sound")
            with path.open("wb") as file:
                shutil.copyfileobj(upload, file, 1 << 20)
            try:
                seconds = sound_seconds(Reference(str(path)))
                longest = self.limits.sound_seconds
                if longest is not None and seconds > longest:
                    raise InputError(
                        f"{path}: {seconds:g} s of sound exceed {longest:g}; send it in parts"
                    )
                source = direction.translator.tokenizer.vector_source.opened(str(path))
            except InputError as error:
                message = str(error).replace(str(path), "".join(filter(str.isprintable, name)))
                raise _Wrong("file", message) from error
        # Every sound has the same name: clients must not see one another's.
        return ReadSource("sound", source.vectors, source.times, windows=source.windows)


def _name(direction: Direction) -> str:
    return f"{direction.source}-{direction.target}"


def _endpoint(answer: http.Answer) -> http.Answer:
    """An answer whose errors are objects as OpenAI's."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:
            refusal = http.refusal_of(error)
            status = refusal.status_code
            kind = "server_error" if status >= 500 else "invalid_request_error"
            values = {
                "message": refusal.detail,
                "type": _KINDS.get(status, kind),
                "param": getattr(error, "param", None),
                "code": "invalid_api_key" if status == 401 else None,
            }
            return JSONResponse({"error": values}, status, refusal.headers)

    return answered


def _answer(task: str, asked: _Asked, transcript: _Transcript) -> Response:
    segments = transcript.segments
    text = join_parts(segment.text for segment in segments)
    if asked.form == "text":
        return PlainTextResponse(f"{text}\n")
    if asked.form == "json":
        return JSONResponse({"text": text})
    if asked.form == "verbose_json":
        values = {
            "task": "transcribe" if task == "transcriptions" else "translate",
            "language": language_name(transcript.language).lower(),
            "duration": round(transcript.duration, 3),
            "text": text,
            "segments": [
                _verbose(number, segment, asked.temperature)
                for number, segment in enumerate(segments)
            ],
        }
        return JSONResponse(values)
    timed = [TimedText(segment.start, segment.end, segment.text) for segment in segments]
    if asked.form == "srt":
        return PlainTextResponse(subtitles(timed, "srt"))
    return PlainTextResponse(subtitles(timed, "vtt"), media_type="text/vtt")


def _verbose(number: int, segment: _Segment, temperature: float) -> dict[str, Any]:
    data = segment.text.encode()
    return {
        "id": number,
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "temperature": temperature,
        "avg_logprob": segment.translation.mean_log_probability,
        "compression_ratio": len(data) / len(zlib.compress(data)),
        "no_speech_prob": segment.translation.no_speech,
    }
