"""Files of clients: read from a form, and kept for a while under random names."""

import asyncio
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from transformer.serving.formats.documents import FORMATS, Document
from transformer.serving.formats.tag_projection import PlainText
from transformer.serving.interfaces.http import Refusal, read_parameters
from transformer.settings.commands import Limits

_MAX_STORED = 100
"""Limit of the bytes of all stored files, as a multiple of ``limits.file_bytes``."""

MAX_FILES = 1000
"""Stored files; the oldest are deleted first."""

_MAX_NAME = 100


class Upload(NamedTuple):
    """A form with a file of a known format; ``name`` has no folders and control characters."""

    parameters: dict[str, Any]
    name: str
    extension: str
    data: bytes


class Files:
    """The files of all clients; ``thread`` reads and writes documents, one after the other."""

    def __init__(self, limits: Limits) -> None:
        self._seconds = limits.file_seconds
        self._max_bytes = limits.file_bytes or 0
        self._folder = Path()
        self._sizes: dict[str, int] = {}
        self.thread = ThreadPoolExecutor(1, "files")

    @contextmanager
    def folder(self) -> Iterator[None]:
        """Create a folder that only its owner can read, and delete it at the end."""
        with TemporaryDirectory(prefix="transformer-files-") as folder:
            self._folder = Path(folder)
            yield
            self.thread.shutdown(wait=False, cancel_futures=True)
            self._sizes.clear()

    async def read_upload(self, request: Request) -> Upload:
        """The form of a request with a file; raises Refusal if its format is not known."""
        if not self._max_bytes:
            raise Refusal(403, "Files translation are disabled on this server.")
        async with request.form(max_files=1) as form:
            parameters = await read_parameters(request)
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise Refusal(400, "Invalid request: missing file parameter")
            # A client may name the file in a field of its own.
            path = str(parameters.get("filename") or file.filename or "").replace("\\", "/")
            name = "".join(filter(str.isprintable, PurePath(path).name))[-_MAX_NAME:]
            data = await file.read()
        extension = PurePath(name).suffix.lower()
        if extension not in FORMATS:
            known = ", ".join(FORMATS)
            raise Refusal(400, f"Invalid request: file format not supported (known are {known})")
        return Upload(parameters, name, extension, data)

    async def document(self, data: bytes, extension: str) -> tuple[Document, list[str]]:
        """Read a file and its texts; raises InputError if it is malformed."""

        def read() -> tuple[Document, list[str]]:
            document = FORMATS[extension](data, self._max_bytes)
            return document, [PlainText(text).text for text in document.texts]

        return await asyncio.get_running_loop().run_in_executor(self.thread, read)

    async def add(self, data: bytes, name: str) -> str:
        """Store a file for ``limits.file_seconds``; returns its secret name, TOKEN.NAME."""
        stored = f"{secrets.token_urlsafe(24)}.{name}"
        writing = asyncio.ensure_future(asyncio.to_thread(self._path(stored).write_bytes, data))
        # Also after the client has gone: the file must be deleted.
        writing.add_done_callback(lambda _: self._keep(stored, len(data)))
        await asyncio.shield(writing)
        return stored

    def _keep(self, stored: str, size: int) -> None:
        self._sizes[stored] = size
        max_bytes = max(size, _MAX_STORED * self._max_bytes)
        while len(self._sizes) > MAX_FILES or sum(self._sizes.values()) > max_bytes:
            self.remove(next(iter(self._sizes)))
        asyncio.get_running_loop().call_later(self._seconds, self.remove, stored)

    async def read(self, stored: str) -> bytes | None:
        """A stored file by its secret name; None if there is none."""
        # A path is made of known names only. A file may be deleted at any time.
        with suppress(FileNotFoundError):
            if stored in self._sizes:
                return await asyncio.to_thread(self._path(stored).read_bytes)
        return None

    def remove(self, stored: str) -> None:
        if self._sizes.pop(stored, None) is not None:
            self._path(stored).unlink(missing_ok=True)

    def _path(self, stored: str) -> Path:
        return self._folder / stored.partition(".")[0]


def attachment(data: bytes, name: str) -> Response:
    """A file that browsers save and never show: its HTML must not run."""
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(data, headers=headers, media_type="application/octet-stream")


def address(request: Request, stored: str) -> str:
    """The address of a stored file, behind a web server that forwards requests."""
    scheme = request.headers.get("x-forwarded-proto", request.url.scheme)
    host = request.headers.get("x-forwarded-host", request.url.netloc)
    prefix = request.headers.get("x-forwarded-prefix", "").rstrip("/")
    return f"{scheme}://{host}{prefix}/download_file/{quote(stored)}"
