"""What the benchmarks that train do: each run once, recorded when it is done, gone on with."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.support.records import UNKNOWN, code_version, machine
from benchmarks.support.trained import Trained, train_all
from tests.helpers.runs.runs import PROJECT

pytestmark = pytest.mark.thorough


def test_a_finished_run_is_known_and_not_repeated(trained: Trained, tmp_path: Path) -> None:
    log = trained.folder.with_name("run.log")
    before = log.read_text()
    trained.train(threads=1)
    assert log.read_text() == before
    assert [updates for updates, _ in trained.validated] == [2, 4]
    [call] = map(json.loads, trained.folder.with_name("run.calls.jsonl").read_text().splitlines())
    assert trained.commit == call["commit"] == (code_version()["commit"] or UNKNOWN)
    assert trained.calls.machine == machine(1) and "1 of " in machine(1)
    assert 0 < trained.hours == call["seconds"] / 3600
    shutil.copytree(trained.folder, tmp_path / "run")
    moved = Trained(trained.overrides, tmp_path / "run")
    with pytest.raises(SystemExit, match=r"run\.calls\.jsonl is not there, which says how long"):
        moved.train(threads=1)


@pytest.mark.parametrize("over", [True, False])
def test_a_run_of_other_settings_is_refused_before_training(
    trained: Trained, over: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.yaml", *(["finished"] if over else [])):
        shutil.copy(trained.folder / name, folder)
    new = Trained(trained.overrides, tmp_path / "new")
    other = Trained((*trained.overrides, "model.dropout=0.2"), folder)
    with pytest.raises(SystemExit, match=r"holds a run with another model\.dropout than"):
        list(train_all([new, other], processes=1, threads=1))
    assert not new.folder.exists()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells a child of that")
def test_a_training_ends_with_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from benchmarks.support import trained;"
        "trained.NOTED_EVERY = 0.1;"
        "sleep = 'import os, time; print(os.getpid(), flush=True); time.sleep(100)';"
        "trained.Calls(Path('calls.jsonl')).run(['-c', sleep], Path('log'), 1)"
    )
    benchmark = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(PROJECT)}
    )
    calls = tmp_path / "calls.jsonl"
    log = tmp_path / "log"
    until(lambda: calls.exists() and log.exists() and log.read_text().endswith("\n"))
    benchmark.kill()
    benchmark.wait()
    process = int(log.read_text())
    state = Path(f"/proc/{process}/stat")
    until(lambda: not state.exists() or ") Z " in state.read_text())
    assert json.loads(calls.read_text())["seconds"] > 0
