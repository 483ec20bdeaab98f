"""How much a server translates for 1, 8 and 32 clients, and whether it stands bad ones.

    python benchmarks/serving/throughput.py [--run RUN] [--engine torch|ctranslate2] [--quick]
        [--soak MINUTES]

Each client sends a sentence of the run's test split over a connection that it keeps, waits for the
translation, and sends the next (a closed loop). No sentence is remembered (``cache=0``). Without
RUN a tiny model is trained for a short while, on pocket or on Multi30k in ``--data-root FOLDER``,
and kept under runs/. Clients are threads of this process; the server is another one. Turns of the
numbers of clients are interleaved.

``--soak`` lets 16 clients ask for so many minutes, 5% of whose requests are bad: no JSON, wrong
types, bodies of 10 MB, half a body, clients that hang up; it tells statuses, and the memory of the
server a minute after its start and at its end.

The last line of stdout is JSON: sentences a second, their ratio, and milliseconds.
"""

import argparse
import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from urllib.parse import urlparse

import numpy as np

from benchmarks.decoding.subjects import short_run
from benchmarks.serving.server import JSON, Asked, server
from benchmarks.serving.soak import soak
from transformer.checkpoint.checkpoint import load_checkpoint
from transformer.common.errors import InputError
from transformer.data.corpora.resolve import find_splits

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
        found = list(pool.map(lambda number: ask_for(asked, number, seconds), range(clients)))
    times = [one for times in found for one in times]
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
