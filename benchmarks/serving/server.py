"""A server to measure, in a process of its own, and what clients ask it for."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.decoding.subjects import ROOT
from transformer.common.errors import InputError

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
