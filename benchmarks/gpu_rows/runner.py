"""Measures rows one after another and keeps each at once, whatever happens to the next.

It does not know what rows measure.
"""

import gc
import json
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental import _config as shape_settings

from benchmarks.gpu_rows.bench import Bench, OutOfTime
from benchmarks.gpu_rows.registry import Row
from transformer.common.files import written_whole

Line = dict[str, Any]
"""A row as it is kept: ``table``, ``row``, ``values`` or ``why`` there are none, ``seconds``."""

LATE = "deadline"
"""Why a row is not measured for which no time is left."""
GRACE = 20
"""Seconds after the deadline at which the process ends even if a row does not."""


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
        found: dict[tuple[str, str], Line] = {}
        for text in self.path.read_text(encoding="utf-8").splitlines():
            line: Line = json.loads(text)
            key = line["table"], line["row"]
            if "why" not in line or "why" in found.get(key, line):
                found[key] = line
        return list(found.values())


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


class Runner:
    """Measures rows in one process.

    Attributes:
        lines: One for each row so far, whether it was measured or not.
    """

    def __init__(self, rows: Sequence[Row], bench: Bench) -> None:
        self.rows, self.bench = list(rows), bench
        self.lines: list[Line] = []
        self.file, self.cache = Lines(bench.folder), CompilerCache(bench.folder)
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
