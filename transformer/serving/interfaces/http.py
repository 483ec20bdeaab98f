"""What all routes share: reading a request within limits, clients that go, errors.

Each interface has its own form of an error; the status is the same.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
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

Refusal = HTTPException
"""A request that is not answered as asked: HTTP status, and one line for the client."""

_REFUSALS: dict[type[Exception], tuple[Any, ...]] = {
    QueueFull: (429, "Slowdown: too many sentences wait", {"Retry-After": "1"}),
    TimeoutError: (504, "The translation took too long; send less at a time"),
    # As nginx logs it; nobody receives it.
    ClientDisconnect: (499, "The client has gone"),
}

_CLOSE = {"Connection": "close"}

_FILE_PATHS = ("/translate_file", "/v2/document")


def endpoint(answer: Answer, key: str) -> Answer:
    """An answer whose errors are JSON, with the text under that key."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:
            refusal = refusal_of(error)
            return JSONResponse({key: refusal.detail}, refusal.status_code, refusal.headers)

    return answered


def refusal_of(error: Exception) -> Refusal:
    """What to tell a client about an error; what is not its fault is logged."""
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
    """The result of work; it is cancelled, and ClientDisconnect raised, if the client hangs up."""
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
                yield _event({"error": refusal_of(error).detail})
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


def check_size(texts: Sequence[str], limits: Limits, status: int) -> None:
    """Raise Refusal with that status for too many texts, or one that is too long."""
    longest = max(map(len, texts), default=0)
    for size, limit in ((len(texts), limits.texts), (longest, limits.characters)):
        if limit is not None and size > limit:
            wrong = f"request ({size}) exceeds text limit ({limit})"
            raise Refusal(status, f"Invalid request: {wrong}")


async def read_parameters(request: Request) -> dict[str, Any]:
    """The parameters of a request: its JSON object, or its query string and its form together.

    A parameter that a form or query has several times is a list there; newlines are those of Unix.
    Raises Refusal if the body is not what its type says.
    """
    kind = request.headers.get("content-type", "")
    try:
        if "json" in kind:
            parameters = json.loads(await request.body())
        else:
            form = await request.form() if "form" in kind else FormData()
            parameters = _joined((*request.query_params.multi_items(), *form.multi_items()))
        # An escape can spell half of a character, which no text has.
        json.dumps(parameters, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Refusal(400, "Invalid request: a text holds half of a character") from error
    except (ValueError, RecursionError):
        parameters = None
    if not isinstance(parameters, dict):
        form_text = "Invalid request: the form is not UTF-8"
        raise Refusal(400, "Invalid JSON format" if "json" in kind else form_text)
    return parameters


def _joined(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The texts of a query or form by their names."""
    given: dict[str, list[str]] = {}
    for name, value in items:
        if name.startswith("{"):
            wrong = "a JSON body needs the header Content-Type: application/json"
            raise Refusal(400, f"Invalid request: {wrong}")
        if isinstance(value, str):
            text = value.replace("\r\n", "\n").replace("\r", "\n")
            given.setdefault(name, []).append(text)
    return {name: texts if len(texts) > 1 else texts[0] for name, texts in given.items()}


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
        most, seconds = self.limits.body_bytes, self.limits.body_seconds
        if scope["path"] in _FILE_PATHS and self.limits.file_bytes is not None:
            # The form around the file is within the limit of other requests; none is slower.
            most += self.limits.file_bytes
            seconds *= most / self.limits.body_bytes
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
