"""Shared by all routes: limits and parameters of requests, clients that hang up, errors."""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from time import monotonic
from typing import Any, TypeVar

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer.common.errors import InputError
from transformer.serving.access import Access, Client
from transformer.serving.micro_batching import QueueFull
from transformer.settings.commands import Limits

log = logging.getLogger(__name__)

T = TypeVar("T")
Answer = Callable[[Request], Awaitable[Response]]

Refusal = HTTPException

_REFUSALS: dict[type[Exception], tuple[Any, ...]] = {
    QueueFull: (429, "Slowdown: too many sentences wait", {"Retry-After": "1"}),
    TimeoutError: (504, "The translation took too long; send less at a time"),
    # The status of nginx; it is in the metrics only.
    ClientDisconnect: (499, "The client has gone"),
}

_CLOSE = {"Connection": "close"}

_FILE_PATHS = (
    "/translate_file",
    "/v2/document",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
)


def endpoint(answer: Answer, key: str) -> Answer:
    """An answer whose errors are JSON, with the message under that key."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:
            refusal = refusal_of(error)
            return JSONResponse({key: refusal.detail}, refusal.status_code, refusal.headers)

    return answered


def refusal_of(error: Exception) -> Refusal:
    """The status and message of an error; an unexpected error is logged."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, InputError):
        return Refusal(400, str(error))
    for kind, values in _REFUSALS.items():
        if isinstance(error, kind):
            return Refusal(*values)
    number = secrets.token_hex(4)
    log.error("request %s failed", number, exc_info=error)
    return Refusal(500, f"Internal error {number}; the log of the server says more")


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of work; if the client hangs up, cancels it and raises ClientDisconnect."""

    async def hang_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(hang_up())
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
    """Server-sent events: each item with its index, then ``[DONE]``; a later error is an event."""
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
                yield _event({"error": refusal_of(error).detail})
            yield "data: [DONE]\n\n"

    # Otherwise nginx collects the events.
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), headers=headers, media_type="text/event-stream")


def _event(values: dict[str, Any]) -> str:
    return f"data: {json.dumps(values, ensure_ascii=False)}\n\n"


def charge(request: Request, access: Access, client: Client | None, texts: int) -> None:
    """Count so many texts of a client or address; raises Refusal above the limit."""
    address = request.client.host if request.client else "unknown"
    if not access.admits(client, address, texts):
        raise Refusal(429, "Slowdown: too many requests a minute", {"Retry-After": "10"})


def check_size(texts: Sequence[str], limits: Limits, status: int) -> None:
    """Raise Refusal with that status for too many texts, or a text that is too long."""
    longest = max(map(len, texts), default=0)
    for size, limit in ((len(texts), limits.texts), (longest, limits.characters)):
        if limit is not None and size > limit:
            raise Refusal(status, f"Invalid request: request ({size}) exceeds text limit ({limit})")


async def read_parameters(request: Request) -> dict[str, Any]:
    """The JSON object of a request, or its query and form; a repeated parameter is a list."""
    kind = request.headers.get("content-type", "")
    parameters = None
    with suppress(ValueError, RecursionError):
        if "json" in kind:
            parameters = json.loads(await request.body())
        else:
            form = await request.form() if "form" in kind else FormData()
            items = (*request.query_params.multi_items(), *form.multi_items())
            values: dict[str, list[str]] = {}
            for name, value in items:
                if isinstance(value, str):
                    text = value.replace("\r\n", "\n").replace("\r", "\n")
                    values.setdefault(name, []).append(text)
            parameters = {
                name: texts if len(texts) > 1 else texts[0] for name, texts in values.items()
            }
        # JSON can spell a lone surrogate, which is no character.
        json.dumps(parameters, ensure_ascii=False).encode()
        if isinstance(parameters, dict):
            return parameters
    raise Refusal(400, f"Invalid {'JSON' if 'json' in kind else 'form'} format")


class LimitedBodies:
    """Middleware: refuses a body that is too long or comes too slowly."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count what it sends."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        size = 0
        complete = False
        max_bytes = self.limits.body_bytes
        seconds = self.limits.body_seconds
        if scope["path"] in _FILE_PATHS and self.limits.file_bytes is not None:
            max_bytes += self.limits.file_bytes
            seconds *= max_bytes / self.limits.body_bytes
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
            if size > max_bytes:
                raise Refusal(413, f"The body exceeds {max_bytes} bytes", _CLOSE)
            return message

        await self.app(scope, limited, send)
