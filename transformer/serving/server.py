"""Runs the application until a signal; then answers the accepted requests, and ends."""

import errno
import math
import signal
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from transformer.common.errors import InputError
from transformer.serving.config import ServerConfig


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
    app: ASGIApp, listening: socket.socket, config: ServerConfig, started: Callable[[], None]
) -> None:
    """Serve on a socket until SIGTERM or Ctrl-C; calls ``started`` when it answers requests."""

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

    server = Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            # Any client could send the header with another address.
            proxy_headers=False,
            limit_concurrency=config.limits.connections,
            timeout_graceful_shutdown=math.ceil(config.drain_seconds),
        )
    )
    # uvicorn raises the signal again at its end.
    before = [(one, signal.signal(one, lambda *_: None)) for one in (signal.SIGTERM, signal.SIGINT)]
    try:
        server.run(sockets=[listening])
    finally:
        for number, handler in before:
            signal.signal(number, handler)
