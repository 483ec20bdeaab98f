"""Clients that ask a server for minutes, some of them badly: what they get, and its memory."""

import http.client
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.serving.server import JSON, Asked
from benchmarks.training.process_memory import memory_of

SOAK_CLIENTS = 16
BAD = 0.05


def no_json(asked: Asked, connection: http.client.HTTPConnection, text: str) -> int:
    """Half of a JSON object."""
    connection.request("POST", "/translate", asked.body(text)[:-3], JSON)
    return connection.getresponse().status


def wrong_types(asked: Asked, connection: http.client.HTTPConnection, text: str) -> int:
    """A number in place of a text."""
    body = json.dumps({"q": [text, 7], "source": asked.source, "target": asked.target})
    connection.request("POST", "/translate", body, JSON)
    return connection.getresponse().status


def large_body(asked: Asked, connection: http.client.HTTPConnection, text: str) -> int:
    """10 MB."""
    try:
        connection.request("POST", "/translate", asked.body(text * (10**7 // len(text))), JSON)
    except (BrokenPipeError, ConnectionResetError):
        # The server has refused it before its end.
        return 413
    return connection.getresponse().status


def slow_sender(asked: Asked, connection: http.client.HTTPConnection, text: str) -> int:
    """A body that comes in two parts, two seconds apart."""
    body = asked.body(text)

    def parts() -> Iterator[bytes]:
        yield body[:9]
        time.sleep(2)
        yield body[9:]

    headers = JSON | {"Content-Length": str(len(body))}
    connection.request("POST", "/translate", parts(), headers)
    return connection.getresponse().status


def hang_up(asked: Asked, connection: http.client.HTTPConnection, text: str) -> int:
    """A client that does not wait for its answer."""
    connection.request("POST", "/translate", asked.body(text), JSON)
    return 0


BAD_REQUESTS: dict[Callable[[Asked, http.client.HTTPConnection, str], int], int] = {
    no_json: 400,
    wrong_types: 400,
    large_body: 413,
    slow_sender: 200,
    hang_up: 0,
}
"""How a client misbehaves, and the status that it must get; 0 is none."""


def soak_client(asked: Asked, number: int, seconds: float) -> Counter[str]:
    """Good and bad requests of one client, counted by what came of them."""
    drawn = random.Random(number)
    counted = Counter[str]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection = asked.connect()
        text = drawn.choice(asked.texts)
        try:
            if drawn.random() < BAD:
                misbehave, expected = drawn.choice(list(BAD_REQUESTS.items()))
                status = misbehave(asked, connection, text)
                name = misbehave.__name__
            else:
                connection.request("POST", "/translate", asked.body(text), JSON)
                name = "good"
                expected = 200
                status = connection.getresponse().status
            counted[name if status == expected else f"{name}: {status}"] += 1
        except OSError as error:
            counted[f"no answer: {type(error).__name__}"] += 1
        finally:
            connection.close()
    return counted


def soak(asked: Asked, pid: int, seconds: float) -> dict[str, float]:
    """Let clients ask, some of them badly; count answers, and watch the memory of the server."""
    with ThreadPoolExecutor(SOAK_CLIENTS) as pool:
        futures = [
            pool.submit(soak_client, asked, number, seconds) for number in range(SOAK_CLIENTS)
        ]
        time.sleep(min(60.0, seconds / 2))
        before = memory_of(pid).private
        counted = sum((future.result() for future in futures), Counter[str]())
    growth = memory_of(pid).private - before
    for name, number in sorted(counted.items()):
        print(f"{name}: {number:,}")
    print(f"memory: {before:.0f} MiB, then {growth:+.0f} MiB")
    wrong = sum(number for name, number in counted.items() if ":" in name)
    return {"requests": counted.total(), "wrong": wrong, "growth_mib": round(growth, 1)}
