"""The server: all routes, the page at ``/``, measurement of requests, CORS, and its socket."""

import errno
import hashlib
import math
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from time import monotonic

import uvicorn
import yaml
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer.common.errors import InputError
from transformer.serving.access import Access
from transformer.serving.interfaces.deepl import DeepL
from transformer.serving.interfaces.files import Files
from transformer.serving.interfaces.http import LimitedBodies
from transformer.serving.interfaces.libretranslate import LibreTranslate
from transformer.serving.interfaces.openai import OpenAI
from transformer.serving.micro_batching import Metrics
from transformer.serving.request_queue import RequestQueue
from transformer.settings.commands import ServerConfig

_CLOSE_SECONDS = 5.0

_CORS = Middleware(
    CORSMiddleware,
    allow_origins=["*"],
    allow_headers=["Authorization", "Content-Type"],
    max_age=1_728_000,
    allow_methods=["GET", "POST"],
)


def build_app(queue: RequestQueue, access: Access) -> Starlette:
    """The application of a queue, which ends when the server stops."""

    async def health(request: Request) -> Response:
        status = "ok" if queue.batcher.works else "the thread of the models has ended"
        return JSONResponse({"status": status}, 200 if status == "ok" else 503)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(queue.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def spec(request: Request) -> Response:
        return JSONResponse(description)

    file = files("transformer.serving.interfaces").joinpath("assets/openapi.yaml")
    description = yaml.safe_load(file.read_text("utf-8"))
    stored = Files(queue.limits)
    deepl = DeepL(queue, access, stored)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with stored.folder():
            yield
            await deepl.documents.close()
        # No client waits any more, but a batch may take long.
        queue.batcher.close(_CLOSE_SECONDS)

    routes = [
        *LibreTranslate(queue, access, stored).routes(),
        *deepl.routes(),
        *OpenAI(queue, access, stored).routes(),
        *page_routes(),
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/spec", spec),
    ]
    paths = {route.path for route in routes}
    measured = Middleware(Measured, metrics=queue.metrics, routes=paths)
    return Starlette(
        routes=routes,
        middleware=[measured, _CORS, Middleware(LimitedBodies, limits=queue.limits)],
        exception_handlers={HTTPException: _no_route},
        lifespan=lifespan,
    )


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}

_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Browsers keep a file, and compare its ETag each time.
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    """``/`` and ``/page/NAME`` of each of its files, which are read now.

    The page calls the routes of LibreTranslate by relative addresses.
    """
    folder = files("transformer.serving.interfaces") / "assets" / "page"
    # A map of attention looks as in reports.
    attention_map = files("transformer.reports") / "assets" / "attention_map.js"
    assets = {file.name: file.read_bytes() for file in (*folder.iterdir(), attention_map)}
    tags = {name: f'"{hashlib.sha256(data).hexdigest()[:16]}"' for name, data in assets.items()}

    async def asset(request: Request) -> Response:
        name = request.path_params.get("name", "page.html")
        if name not in assets:
            return Response("There is no such file.", 404)
        headers = _PAGE_HEADERS | {"ETag": tags[name]}
        if tags[name] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
        return Response(assets[name], headers=headers, media_type=media_type)

    return [Route("/", asset), Route("/page/{name}", asset)]


class Measured:
    """Middleware: counts requests and their time."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: set[str]) -> None:
        self.app = app
        self.metrics = metrics
        self.routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # One label for all unknown paths: clients must not create labels.
        paths = (scope["path"], "/".join(scope["path"].split("/")[:3]))
        route = next((path for path in paths if path in self.routes), "other")
        start = monotonic()
        status = 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, counted)
        finally:
            self.metrics.requests.labels(route, status).inc()
            self.metrics.request_seconds.labels(route).observe(monotonic() - start)


def listen(config: ServerConfig) -> socket.socket:
    """A socket that listens; raises InputError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio sends small answers at once (TCP_NODELAY) only where the protocol is named.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        advice = "host= must be an address of this machine, such as 127.0.0.1 or 0.0.0.0"
        if error.errno == errno.EADDRINUSE:
            advice = "give another port, or end the program that has it"
        raise InputError(
            f"cannot listen on host={config.host} port={config.port}: {error.strerror}; {advice}"
        ) from error
    return listening


def run_until_signal(
    app: ASGIApp,
    listening: socket.socket,
    config: ServerConfig,
    started: Callable[[Callable[[], None]], object],
) -> None:
    """Serve on a socket until SIGTERM or Ctrl-C, which only the main thread gets.

    When it answers requests it calls ``started`` with a function that stops it, from any thread.
    """

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started(self.stop)

        def stop(self) -> None:
            self.should_exit = True

    server = Server(
        uvicorn.Config(
            app,
            log_config=None,  # uvicorn's own would close the handlers of a program
            log_level=None,
            access_log=False,
            server_header=False,
            # Any client could send the header with another address.
            proxy_headers=False,
            limit_concurrency=config.limits.connections,
            timeout_graceful_shutdown=math.ceil(config.drain_seconds),
        )
    )
    # uvicorn raises the signal again at its end.
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            handlers[number] = signal.signal(number, lambda *_: None)
    try:
        server.run(sockets=[listening])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
