"""Throughput of a server for 1, 8 and 32 clients, and its behavior with faulty clients.

    python benchmarks/serving/throughput.py [--run RUN] [--engine torch|ctranslate2] [--quick]
        [--soak MINUTES]

Each client sends a sentence of the run's test split over a connection that it keeps, waits for the
translation, and sends the next (a closed loop). The cache is off (``cache=0``). Without
RUN a tiny model is trained for a short while, on pocket or on Multi30k in ``--data-root FOLDER``,
and kept under runs/. Clients are threads of this process; the server is another one. Turns of the
numbers of clients are interleaved.

``--soak`` lets 16 clients ask for so many minutes, 5% of whose requests are bad: no JSON, wrong
types, bodies of 10 MB, half a body, clients that hang up; it prints the statuses, and the memory of
the server a minute after its start and at its end.

The last line of stdout is JSON: sentences a second, their ratio, and milliseconds.
"""

import argparse
import http.client
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlparse

import numpy as np

from benchmarks.support.process_memory import memory_of
from benchmarks.support.translation_models import ROOT, short_run
from transformer.checkpoint.checkpoint import load_checkpoint
from transformer.common.errors import InputError
from transformer.data.corpora.resolve import find_splits

TIMEOUT_SECONDS = 60
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Asked:
    """The server's address, and the languages and sentences to ask for."""

    host: str
    port: int
    source: str
    target: str
    texts: Sequence[str]

    def body(self, text: str) -> bytes:
        """A request for one sentence."""
        return json.dumps({"q": text, "source": self.source, "target": self.target}).encode()

    def connect(self) -> http.client.HTTPConnection:
        """A new connection."""
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_SECONDS)


@contextmanager
def server(run: Path, engine: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address; SIGTERM ends it.

    For ``ctranslate2`` the run is exported first, unless it was.

    Raises:
        InputError: The model cannot be exported, or the server has not started.
    """
    if engine == "ctranslate2" and not any((run / "export").glob("ctranslate2*/model.bin")):
        export = ["-m", "transformer", "export", f"checkpoint={run.resolve()}"]
        done = subprocess.run([sys.executable, *export], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise InputError(done.stderr.strip())
    call = ["-m", "transformer", "serve", f"checkpoint={run.resolve()}", "port=0", "cache=0"]
    process = subprocess.Popen(
        [sys.executable, *call, f"engine={engine}"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if " at http://" in line:
                break
            print(line, end="", file=sys.stderr)
        else:
            raise InputError(f"the server of {run} has not started")
        yield process, line.split()[-1]
    finally:
        process.terminate()
        print(process.stderr.read(), end="", file=sys.stderr)
        process.wait()


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


CLIENTS = (1, 8, 32)
TURNS = 3


def ask_for(asked: Asked, number: int, seconds: float) -> list[float]:
    """One client: the time of each of its requests.

    Raises:
        InputError: An answer is not a translation.
    """
    connection = asked.connect()
    times: list[float] = []
    end = time.monotonic() + seconds
    texts = random.Random(number).sample(asked.texts, len(asked.texts))
    while (start := time.monotonic()) < end:
        connection.request("POST", "/translate", asked.body(texts[len(times) % len(texts)]), JSON)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        if answer.status != 200 or "translatedText" not in body:
            raise InputError(f"the server answered {answer.status}: {body}")
        times.append(time.monotonic() - start)
    connection.close()
    return times


def turn(asked: Asked, clients: int, seconds: float) -> tuple[float, list[float]]:
    """Sentences a second of so many clients, and the time of each."""
    start = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        client_times = list(
            pool.map(lambda number: ask_for(asked, number, seconds), range(clients))
        )
    times = [taken for times in client_times for taken in times]
    return len(times) / (time.monotonic() - start), times


def measure(asked: Asked, seconds: float) -> dict[str, float]:
    """Sentences a second and percentiles of time for each number of clients."""
    turn(asked, max(CLIENTS), min(seconds, 5))
    rates: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    times: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    for _ in range(TURNS):
        for clients in CLIENTS:
            rate, found = turn(asked, clients, seconds)
            rates[clients].append(rate)
            times[clients] += found
    numbers: dict[str, float] = {}
    print("| clients | sentences/s | p50 ms | p95 ms | p99 ms |", "| --- " * 5 + "|", sep="\n")
    for clients in CLIENTS:
        rate = float(np.median(rates[clients]))
        p50, p95, p99 = np.percentile(times[clients], (50, 95, 99)) * 1000
        print(f"| {clients} | {rate:.1f} | {p50:.0f} | {p95:.0f} | {p99:.0f} |")
        numbers |= {f"clients_{clients}": round(rate, 1), f"p99_ms_{clients}": round(p99, 1)}
    numbers["ratio"] = round(numbers[f"clients_{max(CLIENTS)}"] / numbers["clients_1"], 2)
    return numbers


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", type=Path)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--engine", choices=("torch", "ctranslate2"), default="torch")
    parser.add_argument("--quick", action="store_true", help="shorter turns, and a smaller model")
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    return parser.parse_args()


def main() -> int:
    """Returns the exit code: 2 where the call is wrong."""
    arguments = parse()
    try:
        run = arguments.run or short_run(arguments.data_root, 100 if arguments.quick else 1000)
        config = load_checkpoint(run).config.data
        texts = [pair[0] for pair in islice(find_splits(config)["test"], 1000) if pair[0].strip()]
        with server(run, arguments.engine) as (process, url):
            address = urlparse(url)
            asked = Asked(
                str(address.hostname), address.port or 0, config.source, config.target, texts
            )
            if arguments.soak:
                numbers = soak(asked, process.pid, arguments.soak * 60)
            else:
                numbers = measure(asked, 5 if arguments.quick else 20)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(numbers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
