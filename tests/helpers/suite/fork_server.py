"""The process from which tests fork others; the workers of a test run share one.

It has imported all that its children need, `tests.helpers.runs.warm`.
"""

import multiprocessing
import os
from multiprocessing import forkserver, resource_tracker
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.helpers.runs.warm"])

_server: Any = forkserver._forkserver  # type: ignore[attr-defined]
_ADDRESS = ("_forkserver_address", "_forkserver_authkey")
"""What a process must know to fork from a server; the key only since Python 3.14."""


def start_server() -> dict[str, Any]:
    """Start the server, which then imports by itself; returns what `join_server` needs."""
    _server.ensure_running()
    return {name: getattr(_server, name) for name in _ADDRESS if hasattr(_server, name)}


def join_server(address: dict[str, Any]) -> None:
    """Let this process fork from a server that its parent has started."""
    vars(_server).update(address)
    # Each child holds an end of a pipe that keeps its own server alive; this one needs none.
    _, _server._forkserver_alive_fd = os.pipe()
    _server.ensure_running = resource_tracker.ensure_running
