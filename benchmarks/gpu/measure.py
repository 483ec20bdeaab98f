"""Measures rows one after another, and writes each to the disk before it begins the next.

It knows neither models nor which rows there are.
"""

import gc
import json
import math
import multiprocessing
import os
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental import _config as shape_settings

from transformer.common.files import written_whole

Values = dict[str, Any]
"""What a row has found; the keys are columns of its table."""

MOST = 6
"""A row is timed for at most this many times ``Bench.seconds``."""
BLOCK = 20
"""Milliseconds: shorter calls are timed together, so that the host does not wait for each."""
TOKENS = 25_000
"""Of a batch, of each side."""
CHUNK = 32_768
"""Rows of logits, as in ``trainer=gpu``."""
SMALL = 100
"""A rehearsal divides sizes by it."""
Line = dict[str, Any]
"""A row as it is kept: ``table``, ``row``, ``values`` or ``why`` there are none, ``seconds``."""

LATE = "deadline"
"""Why a row is not measured for which no time is left."""
GRACE = 20
"""Seconds after the deadline at which the process ends even if a row does not."""


class OutOfTime(Exception):
    """The deadline of the command is over."""


@dataclass
class Bench:
    """Where and how long rows are measured, and how large they are.

    Attributes:
        device: The GPU.
        folder: For rows, text, caches and runs.
        ends: When the time is over, by ``time.monotonic``.
        calls, seconds: A row is timed for at least so many calls and seconds.
        small: Sizes are divided by it; above 1 the models are tiny, too.
    """

    device: torch.device
    folder: Path
    ends: float = math.inf
    calls: int = 5
    seconds: float = 1.0
    small: int = 1
    _products: dict[torch.dtype, Values] = field(default_factory=dict)

    @classmethod
    def tiny(cls, folder: Path, ends: float = math.inf) -> "Bench":
        """All rows, small and on a CPU; a time is that of one call."""
        return cls(torch.device("cpu"), folder, ends, calls=1, seconds=0.0, small=SMALL)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    @property
    def vocabulary(self) -> int:
        """Subwords."""
        return self.of(32_000)

    def of(self, size: int) -> int:
        """The size here."""
        return max(2, size // self.small)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.ends - time.monotonic()

    def check(self) -> None:
        """Raise OutOfTime after the deadline."""
        if self.left <= 0:
            raise OutOfTime

    def time(self, call: Callable[[], object], seconds: float | None = None) -> Values:
        """Milliseconds of a call: the median, of how many calls, and their spread.

        Three calls warm up. Then it is timed for at least ``calls`` and ``seconds``, but no longer
        than ``MOST`` times as long or until the deadline. The spread is that between the fastest
        and the slowest, as a share of the median; ``first s`` are the seconds of the very first
        call, which may compile. OutOfTime if the deadline is over before there is a time.
        """
        self.check()
        seconds = self.seconds if seconds is None else seconds
        first = elapsed(self.device, call)
        shortest = min(elapsed(self.device, call) for _ in range(2))
        block = 1 if self.small > 1 else max(1, min(1000, round(BLOCK / shortest)))
        taken: list[float] = []
        enough = False
        while not enough:
            self.check()
            taken.append(elapsed(self.device, call, block))
            spent = sum(taken) * block / 1000
            enough = len(taken) >= self.calls and spent >= seconds
            enough = enough or spent >= MOST * seconds or self.left <= 0
        median = statistics.median(taken)
        return {
            "ms": median,
            "calls": len(taken) * block,
            "spread": (max(taken) - min(taken)) / median,
            "first s": first / 1000,
        }

    def products(self, dtype: torch.dtype) -> Values:
        """TFLOP/s of the product of two large square matrices of random numbers, measured once."""
        if dtype not in self._products:
            width = self.of(8192)
            shape: dict[str, Any] = {"size": (width, width), "device": self.device, "dtype": dtype}
            left = torch.randn(**shape)
            right = torch.randn(**shape)
            out = torch.empty_like(left)
            timing = self.time(lambda: torch.mm(left, right, out=out))
            self._products[dtype] = {"TFLOP/s": 2 * width**3 / timing["ms"] / 1e9, **timing}
        return self._products[dtype]

    def peak(self) -> float:
        """GiB that were allocated on the GPU at most since the row began."""
        return torch.cuda.max_memory_allocated(self.device) / 2**30 if self.on_gpu else 0.0


@dataclass(frozen=True)
class Row:
    """What is measured.

    Attributes:
        table: Of the page; the compiler is reset where it changes.
        name: Of the row in the table.
        function: ``MODULE:NAME`` in this folder.
        arguments: Of the function, after the bench.
    """

    table: str
    name: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def compiles(self) -> bool:
        """Whether it is measured with torch.compile."""
        return bool(self.arguments.get("compiled"))

    def measure(self, bench: Bench) -> Values:
        """Its values."""
        module, _, name = self.function.partition(":")
        function = getattr(import_module(f"benchmarks.gpu.{module}"), name)
        values: Values = function(bench, **self.arguments)
        return values


class Runner:
    """Measures rows in one process.

    Attributes:
        lines: One for each row so far, whether it was measured or not.
    """

    def __init__(self, rows: Sequence[Row], bench: Bench) -> None:
        self.rows = list(rows)
        self.bench = bench
        self.lines: list[Line] = []
        self.file = Lines(bench.folder)
        self.cache = CompilerCache(bench.folder)
        self._lock = threading.Lock()

    def run(self) -> list[Line]:
        """Measure all rows; those for which there is no time have a line that says so."""
        self.cache.load()
        table = None
        with self._watchdog():
            for row in self.rows:
                if row.table != table:
                    forget_compiled()
                table = row.table
                line = self.measured(row)
                with self._lock:
                    self._keep(line)
                if row.compiles:
                    self.cache.save()
                if "why" in line:
                    forget_compiled()
                clean(self.bench)
                if len(self.lines) == 1:
                    gc.freeze()  # to look at all that is imported takes half a second each time
        return self.lines

    def measured(self, row: Row) -> Line:
        """The line of a row, whether it can be measured or not."""
        began = time.monotonic()
        line: Line = {"table": row.table, "row": row.name}
        try:
            self.bench.check()
            line["values"] = row.measure(self.bench)
        except OutOfTime:
            line["why"] = LATE
        except Exception as error:  # whatever it is, the other rows go on
            traceback.print_exc()
            line["why"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return line | {"seconds": round(time.monotonic() - began, 1)}

    def _keep(self, line: Line) -> None:
        self.lines.append(line)
        self.file.keep(line)

    @contextmanager
    def _watchdog(self) -> Iterator[None]:
        """End the process where a row does not end by itself, such as in a compiler."""
        timer = threading.Timer(min(self.bench.left + GRACE, threading.TIMEOUT_MAX), self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        with self._lock:
            for row in self.rows[len(self.lines) :]:
                self._keep({"table": row.table, "row": row.name, "why": LATE, "seconds": 0.0})
            for process in multiprocessing.active_children():
                process.kill()
            os._exit(1)


class Lines:
    """``rows.jsonl`` of a folder: a line is on the disk when ``keep`` returns."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rows.jsonl"
        self._file = self.path.open("a", encoding="utf-8")

    def keep(self, line: Line) -> None:
        """Append the line, then print it."""
        text = json.dumps(line)
        self._file.write(f"{text}\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        print(text, flush=True)

    def read(self) -> list[Line]:
        """The last line of each row; one that could not be measured replaces no figure."""
        lines: dict[tuple[str, str], Line] = {}
        for text in self.path.read_text(encoding="utf-8").splitlines():
            line: Line = json.loads(text)
            key = line["table"], line["row"]
            if "why" not in line or "why" in lines.get(key, line):
                lines[key] = line
        return list(lines.values())


class CompilerCache:
    """What torch.compile has made, in a file that a later call of the same torch reads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "compile_cache.bin"

    def load(self) -> None:
        """Read the file, if it is there; torch warns of one that it cannot read."""
        if self.path.exists():
            torch.compiler.load_cache_artifacts(self.path.read_bytes())

    def save(self) -> None:
        """Write what this process has made until now."""
        if artifacts := torch.compiler.save_cache_artifacts():
            with written_whole(self.path) as part:
                part.write_bytes(artifacts[0])


def forget_compiled() -> None:
    """Let the next row compile anew, as torch stops at a number of variants of a function."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def clean(bench: Bench) -> None:
    """Free what a row has left behind, and undo what it has set for the whole process."""
    gc.collect()  # modules that are done with refer to themselves
    torch.set_float32_matmul_precision("highest")
    shape_settings.use_duck_shape = True
    if bench.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(bench.device)


def prepare_tiny() -> None:
    """Trace what is compiled, and compute it as it is: to compile all for a CPU takes minutes.

    Compiled is only the sum by which ``check_compiler`` checks, a lambda. All of it, and processes
    that rows start, has one thread: so little work only waits for more.
    """
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    compile_any = torch.compile

    def traced(function: Any, **options: Any) -> Any:
        backend = "inductor" if function.__name__ == "<lambda>" else "eager"
        return compile_any(function, **{"backend": backend, **options})

    torch.compile = traced  # type: ignore[assignment]


def elapsed(device: torch.device, call: Callable[[], object], times: int = 1) -> float:
    """Milliseconds of a call that is made so many times, by CUDA events or by the host's clock."""
    watch = Stopwatch(device)
    for _ in range(times):
        call()
    return watch.stop() / times


class Stopwatch:
    """Milliseconds on a device from now on: by CUDA events, or by the clock of the host."""

    def __init__(self, device: torch.device) -> None:
        self.events: list[Any] = []
        if device.type == "cuda":
            self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self.events[0].record()
        self.began = time.perf_counter()

    def stop(self) -> float:
        """Wait for the device, and give the time."""
        if not self.events:
            return (time.perf_counter() - self.began) * 1000
        began, ended = self.events
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended))
