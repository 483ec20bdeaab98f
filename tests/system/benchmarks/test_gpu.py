"""The benchmark of a GPU runs on a CPU, too, and keeps what it has measured."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import experiments, measure
from benchmarks.gpu.measure import LATE, Bench, CompilerCache, Line, Lines, OutOfTime, Runner
from benchmarks.gpu.models import made_batches
from benchmarks.gpu.rows import ROWS, TABLES, UNMEASURED, Row, tables
from benchmarks.gpu.runs import SYNCHRONIZING, logged_speed, waits

ROOT = Path(__file__).parents[3]
SLOW = {"resume", "ddp", "compiled_run", "choices", "tokens", "launches"}
"""Tables whose rows start processes or compile, the last three as ``update`` does."""


def rehearse(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    call = ["-m", "benchmarks.gpu", *arguments, "--rehearse", "--folder", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *call], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )


def kept(folder: Path) -> list[Line]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text("utf-8").splitlines()]


def check(rows: list[Row], folder: Path) -> None:
    """Each row has numbers, in the order of the registry, and all of them are sound."""
    lines = kept(folder)
    assert [line for line in lines if "why" in line] == []
    assert [(line["table"], line["row"]) for line in lines] == [(r.table, r.name) for r in rows]
    for line in lines:
        numbers = {k: v for k, v in line["values"].items() if isinstance(v, int | float)}
        assert numbers or line["table"] == "machine", line
        assert all(value >= 0 for value in numbers.values()), line
        speeds = [v for k, v in numbers.items() if k.endswith(("/s", "ms", "calls"))]
        assert all(speed > 0 for speed in speeds), line


@pytest.mark.thorough
def test_rows_are_measured(tmp_path: Path) -> None:
    process = rehearse(tmp_path, *(table for table in TABLES if table not in SLOW))
    process.communicate()
    assert process.returncode == 0
    check([row for row in ROWS if row.table not in SLOW], tmp_path)


@pytest.mark.slow
def test_each_row_is_measured(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "benchmarks.gpu", "all", "--rehearse", "--folder", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(call, cwd=ROOT, env=environment, check=True, start_new_session=True)
    check(list(ROWS), tmp_path)
    # What was compiled can be read by the next call.
    assert torch.compiler.load_cache_artifacts(CompilerCache(tmp_path).path.read_bytes())


@pytest.mark.thorough
def test_a_killed_process_has_kept_its_rows(tmp_path: Path) -> None:
    process = rehearse(tmp_path, "all")
    assert process.stdout
    shown = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.kill()
    process.communicate()
    assert kept(tmp_path)[:3] == shown
    assert [line["row"] for line in shown] == [row.name for row in ROWS[:3]]


@pytest.mark.thorough
def test_after_the_deadline_each_row_says_so(tmp_path: Path) -> None:
    process = rehearse(tmp_path, "all", "--deadline", "1e-3")
    process.communicate()
    assert process.returncode == 1
    assert [line["why"] for line in kept(tmp_path)] == [LATE] * len(ROWS)


@dataclass(frozen=True)
class Made:
    """A row that does as the test says."""

    name: str
    act: Callable[[Bench], dict[str, Any]]
    table: str = "made"
    compiles: bool = False

    def measure(self, bench: Bench) -> dict[str, Any]:
        return self.act(bench)


def run_made(folder: Path, *rows: Made, **settings: Any) -> list[Line]:
    bench = replace(Bench.tiny(folder), **settings)
    return Runner(rows, bench).run()  # type: ignore[arg-type]


def test_a_row_that_fails_says_why_and_the_next_is_measured(tmp_path: Path) -> None:
    def fail(bench: Bench) -> dict[str, Any]:
        raise RuntimeError("no\nkernel")

    def too_long(bench: Bench) -> dict[str, Any]:
        raise OutOfTime

    missing = Row("made", "missing", "no_module:row")
    lines = run_made(tmp_path, Made("fails", fail), Made("late", too_long), missing)  # type: ignore[arg-type]
    lines += run_made(tmp_path, Made("works", lambda bench: {"ms": 1.0}))
    assert lines == kept(tmp_path)
    assert [line.get("why", line.get("values")) for line in lines] == [
        "RuntimeError: no kernel",
        LATE,
        "ModuleNotFoundError: No module named 'benchmarks.gpu.no_module'",
        {"ms": 1.0},
    ]


def test_a_figure_outlives_a_later_call_without_one(tmp_path: Path) -> None:
    def too_late(bench: Bench) -> dict[str, Any]:
        raise OutOfTime

    for act in (lambda bench: {"ms": 1.0}, too_late):
        run_made(tmp_path, Made("works", act))
    (line,) = Lines(tmp_path).read()
    assert line["values"] == {"ms": 1.0}


def test_a_row_that_does_not_end_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(measure, "GRACE", 0.0)
    monkeypatch.setattr("os._exit", lambda code: ended.set())

    def hang(bench: Bench) -> dict[str, Any]:
        ended.wait(60)
        raise SystemExit

    with pytest.raises(SystemExit):
        run_made(tmp_path, Made("hangs", hang), Made("next", hang), ends=time.monotonic() + 0.3)
    assert [(line["row"], line["why"]) for line in kept(tmp_path)] == [
        ("hangs", LATE),
        ("next", LATE),
    ]


def test_a_time_is_of_enough_calls_or_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def take(milliseconds: float) -> Callable[[], None]:
        def call() -> None:
            nonlocal now
            now += milliseconds / 1000

        return call

    monkeypatch.setattr("time.perf_counter", lambda: now)
    bench = Bench(torch.device("cpu"), ROOT)
    # Short calls are timed in blocks, for a second; long ones five times, or once.
    calls = {ms: bench.time(take(ms))["calls"] for ms in (1, 130, 500, 4000, 8000)}
    assert 1000 <= calls.pop(1) <= 1020
    assert calls == {130: 8, 500: 5, 4000: 2, 8000: 1}
    found = bench.time(take(125))
    expected = {"ms": 125, "calls": 8, "spread": 0, "first s": 0.125}
    assert found == pytest.approx(expected, abs=1)
    with pytest.raises(OutOfTime):
        replace(bench, ends=0.0).time(take(1))


def test_a_page_has_what_was_and_was_not_measured(tmp_path: Path) -> None:
    file = Lines(tmp_path)
    values = {"update": [{"a": 1234, "b": 1234.5}, {"a": "x|y", "c": 0.12345}], "text": [{"s": 2}]}
    for table, found in values.items():
        rows = [row for row in ROWS if row.table == table]
        for row, value in zip(rows, found, strict=False):
            file.keep({"table": table, "row": row.name, "why": "an earlier call"})
            file.keep({"table": table, "row": row.name, "values": value})
    file.keep({"table": "ddp", "row": "base", "why": "broken"})
    lines = tables(file.read())
    assert lines[:9] == [
        "| update | a | b | c |",
        "| --- | --- | --- | --- |",
        "| base, eager | 1,234 | 1,234 |  |",
        "| base, compiled | x\\|y |  | 0.123 |",
        "",
        "| text | made up |",
        "| --- | --- |",
        "| s | 2 |",
        "",
    ]
    assert len(lines) == 9 + 2 + len(ROWS) - 3
    assert {"| ddp | base | broken |", f"| machine | here | {UNMEASURED} |"} < set(lines)


@pytest.mark.parametrize(
    ("main", "arguments"), [(gpu.main, ["all"]), (experiments.main, ["--data", "nowhere"])]
)
def test_without_a_gpu_one_line_says_so(
    main: Callable[[list[str]], int],
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch("error: .* needs a CUDA GPU.*\n", printed.err)


def test_waits_are_counted_by_line(tmp_path: Path) -> None:
    def warned(text: str, line: int) -> warnings.WarningMessage:
        return warnings.WarningMessage(UserWarning(text), UserWarning, "/a/loss.py", line)

    caught = [warned(SYNCHRONIZING, 7), warned("other", 7), *[warned(SYNCHRONIZING, 9)] * 3]
    found = waits(caught, updates=2)
    assert found == {"waits an update": 2.0, "of line": "loss.py:9 1.5, loss.py:7 0.5"}
    # The first logged speed does not count.
    file = tmp_path / "metrics.csv"
    file.write_text("step,train/tokens_per_second\n1,5\n2,\n3,30\n4,10\n5,20\n")
    assert logged_speed(file) == 20


def test_batches_keep_their_budget() -> None:
    for batch in made_batches(Bench.tiny(ROOT), 2000, 20):
        assert 1500 < batch.source.numel() <= 2000
        assert batch.target_output.numel() <= 2000


def test_the_page_explains_each_table() -> None:
    page = (ROOT / "benchmarks" / "gpu" / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in TABLES)
