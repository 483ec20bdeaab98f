"""Files in the interface of LibreTranslate: one request translates a file, another fetches it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transformer.serving.formats.documents.document import translate_document
from transformer.serving.interfaces.files import Files, Upload, attachment
from transformer.serving.interfaces.http import Answer, Refusal, unless_gone
from transformer.serving.languages.detection import Detected
from transformer.serving.languages.directions import Direction
from transformer.serving.service import TranslationService
from transformer.serving.translations import Options

_MOST_AT_ONCE = 8
"""Files in memory."""


class LibreTranslateFiles:
    """Translates a file while the client waits.

    Args:
        check_access: Counts texts of a client, whose key is a parameter; raises Refusal.
        direction: The languages that parameters and texts ask for.
    """

    def __init__(
        self,
        service: TranslationService,
        files: Files,
        check_access: Callable[[Request, dict[str, Any], int], None],
        direction: Callable[[dict[str, Any], Sequence[str]], tuple[Detected | None, Direction]],
    ) -> None:
        self._service, self._files = service, files
        self._check_access, self._direction = check_access, direction
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    def answers(self) -> Iterator[tuple[str, Answer, str]]:
        """Path, answer and method of each route."""
        yield "/translate_file", self.translate, "POST"
        yield "/download_file/{name:path}", self.download, "GET"

    async def translate(self, request: Request) -> Response:
        """Translate a file; the answer has the address of the translation."""
        upload = await self._files.read_upload(request)
        for name in ("source", "target"):
            if not upload.parameters.get(name):
                raise Refusal(400, f"Invalid request: missing {name} parameter")
        self._check_access(request, upload.parameters, 1)
        stored = await unless_gone(request, self._translated(request, upload))
        return JSONResponse({"translatedFileUrl": _address(request, stored)})

    async def _translated(self, request: Request, upload: Upload) -> str:
        """The name of the stored translation."""
        if self._turns.locked():
            raise Refusal(429, "Slowdown: too many files are translated", {"Retry-After": "5"})
        async with self._turns, asyncio.timeout(self._service.limits.seconds):
            document, texts = await self._files.document(upload.data, upload.extension)
            self._check_access(request, upload.parameters, max(0, len(texts) - 1))
            _, direction = self._direction(upload.parameters, texts)
            data = await translate_document(
                self._service, document, Options(direction), thread=self._files.thread
            )
        name = PurePath(upload.name)
        return await self._files.add(data, f"{name.stem}_{direction.target}{name.suffix}")

    async def download(self, request: Request) -> Response:
        """A translated file."""
        stored = request.path_params["name"]
        data = await self._files.read(stored)
        if data is None:
            raise Refusal(400, "Invalid filename")
        return attachment(data, stored.partition(".")[2])


def _address(request: Request, stored: str) -> str:
    """Where the client finds a stored file, as far as a web server in front tells that.

    A client that claims to be such a server misleads itself alone.
    """
    scheme = request.headers.get("x-forwarded-proto", request.url.scheme)
    host = request.headers.get("x-forwarded-host", request.url.netloc)
    prefix = request.headers.get("x-forwarded-prefix", "").rstrip("/")
    return f"{scheme}://{host}{prefix}/download_file/{quote(stored)}"
