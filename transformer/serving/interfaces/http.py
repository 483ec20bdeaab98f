"""What all routes share: reading a request within limits, clients that go, errors.

Each interface has its own form of an error; the status is the same.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from time import monotonic
from typing import Any, TypeVar

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer.common.errors import InputError
from transformer.serving.access import Access, Client
from transformer.serving.config import Limits
from transformer.serving.micro_batching import QueueFull

log = logging.getLogger(__name__)

T = TypeVar("T")
Answer = Callable[[Request], Awaitable[Response]]

CLIENT_CLOSED_REQUEST = 499
"""The status that nginx logs for a client that has gone; nobody receives it."""


class Refusal(Exception):
    """A request that is not answered as asked: HTTP status, and one line for the client."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


def endpoint(answer: Answer, body_of: Callable[[str], dict[str, Any]]) -> Answer:
    """An answer whose errors have the JSON body that ``body_of`` makes of a text."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:
            refusal = refusal_of(error)
            return JSONResponse(body_of(refusal.text), refusal.status, refusal.headers)

    return answered


def refusal_of(error: Exception) -> Refusal:
    """What to tell a client about an error; what is not its fault is logged."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, InputError):
        return Refusal(400, str(error))
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, error.detail)
    if isinstance(error, QueueFull):
        return Refusal(429, "Slowdown: too many sentences wait", {"Retry-After": "1"})
    if isinstance(error, TimeoutError):
        return Refusal(504, "The translation took too long; send less at a time")
    if isinstance(error, ClientDisconnect):
        return Refusal(CLIENT_CLOSED_REQUEST, "The client has gone")
    number = secrets.token_hex(4)
    log.error("request %s failed", number, exc_info=error)
    return Refusal(500, f"Internal error {number}; the log of the server says more")


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of work that is cancelled when the client hangs up.

    Raises:
        ClientDisconnect: The client has gone.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hang_up(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            gone.result()
            raise ClientDisconnect
        return working.result()
    finally:
        gone.cancel()
        working.cancel()


async def event_stream(
    request: Request, items: AsyncGenerator[T], event_of: Callable[[T], dict[str, Any]]
) -> Response:
    """The items as server-sent events, each with its index, as they come; the last is ``[DONE]``.

    What fails before the first item is raised; later on, an event has the error.
    """
    first = await unless_gone(request, anext(items))

    async def events() -> AsyncGenerator[str]:
        async with aclosing(items):
            try:
                yield _event({"index": 0, **event_of(first)})
                index = 1
                async for item in items:
                    yield _event({"index": index, **event_of(item)})
                    index += 1
            except Exception as error:
                yield _event({"error": refusal_of(error).text})
            yield "data: [DONE]\n\n"

    # nginx would collect what comes.
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), headers=headers, media_type="text/event-stream")


def _event(values: dict[str, Any]) -> str:
    return f"data: {json.dumps(values, ensure_ascii=False)}\n\n"


async def _hang_up(request: Request) -> None:
    """Wait until the client hangs up; what is left of its body is dropped."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def charge(request: Request, access: Access, client: Client | None, texts: int) -> None:
    """Count so many texts of a client, or of an address; raises Refusal above the limit."""
    address = request.client.host if request.client else "unknown"
    if not access.admits(client, address, texts):
        raise Refusal(429, "Slowdown: too many requests a minute", {"Retry-After": "10"})


async def read_parameters(request: Request) -> dict[str, Any]:
    """The parameters of a request: its JSON object, or its query string and its form together.

    A parameter that a form or query has several times is a list there. Raises Refusal if the body
    is not what its type says.
    """
    if "json" in request.headers.get("content-type", ""):
        try:
            values = json.loads(await request.body())
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise Refusal(400, "Invalid JSON format")
        return _whole_characters(values)
    given: dict[str, list[str]] = {}
    async for name, value in _pairs(request):
        given.setdefault(name, []).append(value)
    return _whole_characters({n: v if len(v) > 1 else v[0] for n, v in given.items()})


def _whole_characters(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters; an escape can spell half of a character, which no text has."""
    try:
        json.dumps(parameters, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise Refusal(400, "Invalid request: a text holds half of a character") from error
    return parameters


async def _pairs(request: Request) -> AsyncGenerator[tuple[str, Any]]:
    """Names and values of the query and of the form; newlines are those of Unix."""
    form = FormData()
    if "form" in request.headers.get("content-type", ""):
        try:
            form = await request.form()
        except UnicodeError as error:
            raise Refusal(400, "Invalid request: the form is not UTF-8") from error
    for name, value in (*request.query_params.multi_items(), *form.multi_items()):
        if name.startswith("{"):
            wrong = "a JSON body needs the header Content-Type: application/json"
            raise Refusal(400, f"Invalid request: {wrong}")
        if isinstance(value, str):
            yield name, value.replace("\r\n", "\n").replace("\r", "\n")


class LimitedBodies:
    """Middleware: a request whose body is too long or comes too slowly is refused."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count what it sends."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        size, complete = 0, False
        most, seconds = self._bounds(scope["path"])
        deadline = monotonic() + seconds

        async def limited() -> Message:
            nonlocal size, complete
            if complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), deadline - monotonic())
            except TimeoutError as error:
                raise Refusal(408, "The body of the request came too slowly", _CLOSE) from error
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > most:
                raise Refusal(413, f"The body exceeds {most} bytes", _CLOSE)
            return message

        await self.app(scope, limited, send)

    def _bounds(self, path: str) -> tuple[int, float]:
        """Bytes and seconds of a body; a file has more of both, and must come no slower."""
        most, seconds = self.limits.body_bytes, self.limits.body_seconds
        if path not in _FILE_PATHS or self.limits.file_bytes is None:
            return most, seconds
        # The form around the file is within the limit of other requests.
        larger = most + self.limits.file_bytes
        return larger, seconds * larger / most


_CLOSE = {"Connection": "close"}

_FILE_PATHS = ("/translate_file", "/v2/document")
