"""The benchmark of a GPU runs on a CPU, too, and keeps what it has measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.measure import LATE, CompilerCache, Line
from benchmarks.gpu.rows import ROWS, TABLES, Row

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
def test_after_the_deadline_each_row_says_so(tmp_path: Path) -> None:
    process = rehearse(tmp_path, "all", "--deadline", "1e-9")
    process.communicate()
    assert process.returncode == 1
    assert [line["why"] for line in kept(tmp_path)] == [LATE] * len(ROWS)
