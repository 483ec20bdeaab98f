"""A server with a chat API on loopback, which fails now and then as the real ones do."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REFUSED = "I'm sorry, but I can't assist with that request."
FAULTS = ("429", "500", "cut", "closed", "refusal", "empty", "slow", "length")


@dataclass
class ChatServer:
    """What it answers, and what it has been asked.

    Attributes:
        fault: The fault for a text that is asked for the n-th time, from 0; "" is an answer.
        translate: The candidates for a text.
        asked: Requests by text.
        answered: Good answers by text, each sent whole.
        bodies: Of all requests.
        headers: Of all requests.
        delay: Seconds before each answer.
        retry_after: The header of status 429.
        encode: Makes the JSON of an answer or an error.
    """

    fault: Callable[[str, int], str] = lambda text, number: ""
    translate: Callable[[str, int], list[str]] = lambda text, n: [text.upper()] * n
    delay: float = 0.0
    retry_after: str = "0.05"
    encode: Callable[[Any], str] = json.dumps
    url: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def now_and_then(probability: float, seed: int = 1) -> Callable[[str, int], str]:
    """Faults of all kinds with this probability, but never for the fifth request for a text."""

    def fault(text: str, number: int) -> str:
        draw = random.Random(f"{seed} {text} {number}")
        return draw.choice(FAULTS) if number < 4 and draw.random() < probability else ""

    return fault


@contextmanager
def chatting(server: ChatServer) -> Iterator[ChatServer]:
    """The server at ``server.url``, until the end of the context."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            _answer(self, server, body)

    ThreadingHTTPServer.request_queue_size = 128  # all connections of a client at once
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
    thread.start()
    server.url = f"http://127.0.0.1:{listening.server_port}"
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join(20)


def _answer(handler: BaseHTTPRequestHandler, server: ChatServer, body: dict[str, Any]) -> None:
    """The text is what follows the last colon and space of the prompt."""
    plain = handler.path.endswith("/translate")
    text = body["q"] if plain else body["messages"][-1]["content"].rpartition(": ")[2]
    with server.lock:
        fault = server.fault(text, server.asked[text])
        server.asked[text] += 1
        server.bodies.append(body)
        server.headers.append(dict(handler.headers))
    time.sleep(server.delay + (0.2 if fault == "slow" else 0.0))
    if fault == "closed":
        handler.close_connection = True
        return
    contents = server.translate(text, body.get("n", 1))
    if fault in ("refusal", "empty"):
        contents = [REFUSED if fault == "refusal" else "  \n"]
    reason = "length" if fault == "length" else "stop"
    choices = [{"message": {"content": one}, "finish_reason": reason} for one in contents]
    usage = {"prompt_tokens": 10, "completion_tokens": 5 * len(contents)}
    values: Any = {"choices": choices, "usage": usage}
    if plain:
        values = {"translatedText": contents[0]}
    status = int(fault) if fault.isdigit() else 200
    if status != 200:
        # As some servers do, it repeats what it was sent.
        values = {"error": {"message": f"wrong: {handler.headers['Authorization']} {body}"}}
    handler.send_response(status)
    if status == 429:
        handler.send_header("Retry-After", server.retry_after)
    data = server.encode(values).encode()
    data = data[: len(data) // 2] if fault == "cut" else data
    handler.send_header("Content-Length", str(len(data)))
    try:
        handler.end_headers()
        handler.wfile.write(data)
    except ConnectionError:  # the client was killed, or has waited long enough
        return
    if fault in ("", "slow"):
        with server.lock:
            server.answered[text] += 1
