"""What the benchmarks that train do: each run once, recorded when it is done, gone on with."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.results import ablations, results
from benchmarks.results.results import columns
from benchmarks.support.records import UNKNOWN, Records, code_version, machine
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


def test_what_was_moved_away_is_not_counted(tmp_path: Path) -> None:
    run = Trained(("no_such_key=1",), tmp_path / "run")
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"exit code 2, see .*run\.log"):
            run.train(threads=1)
    assert len((tmp_path / "run.calls.jsonl").read_text().splitlines()) == 1
    run.folder.mkdir()
    with pytest.raises(SystemExit):
        run.train(threads=1)
    assert len((tmp_path / "run.calls.jsonl").read_text().splitlines()) == 2


def test_one_that_fails_keeps_no_other_from_being_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def train(run: Trained, threads: int, until: float) -> None:
        if run.folder.name == "b":
            raise SystemExit("b: exit code 2")

    monkeypatch.setattr(Trained, "train", train)
    runs = train_all([Trained((), tmp_path / name) for name in "abc"], processes=1, threads=1)
    done = set()
    with pytest.raises(SystemExit, match="b: exit code 2"):
        for run in runs:
            done.add(run.folder.name)
    assert done == {"a", "c"}


class Fakes:
    """Trainings that are done at once; the pages and records of a benchmark in a folder."""

    def __init__(
        self, module: ModuleType, trained: Trained, home: Path, patch: pytest.MonkeyPatch
    ) -> None:
        self.module = module
        self.trained = trained
        self.home = home
        self.patch = patch
        self.begun = list[str]()
        self.fails = ""
        self.page = home / "results.md"
        name = module.__name__.rpartition(".")[2]
        self.page.write_text(f"<!-- {name}: begin -->\n<!-- {name}: end -->\n")
        kept = module.RECORDS
        patch.setattr(module, "RECORDS", Records(home / "x.jsonl", kept.kind, kept.key))
        patch.setattr(module, "PAGE", self.page)
        patch.setattr(Trained, "train", lambda run, threads, until: self._train(run))
        patch.setattr(Trained, "check", lambda run: None)

    def _train(self, run: Trained) -> None:
        if not run.folder.exists():
            self.begun.append(run.folder.name)
            if run.folder.name == self.fails:
                raise SystemExit(f"{self.fails}: exit code 1")
            run.folder.parent.mkdir(parents=True, exist_ok=True)
            run.folder.symlink_to(self.trained.folder)
            calls = self.trained.folder.with_name("run.calls.jsonl")
            shutil.copy(calls, run.folder.with_name(f"{run.folder.name}.calls.jsonl"))

    def call(self, *arguments: str) -> list[str]:
        """What has been trained, in the order in which it began."""
        self.begun.clear()
        where = ("--folder", str(self.home / "runs"), "--processes", "1", *arguments)
        self.patch.setattr(sys, "argv", ["x", *where])
        self.module.main()
        return list(self.begun)

    def lines(self) -> list[str]:
        """The rows of the page, without the two lines at the head of each table."""
        lines = [line for line in self.page.read_text().splitlines() if line.startswith("|")]
        rules = [number for number, line in enumerate(lines) if line.startswith("| ---")]
        heads = {number - before for number in rules for before in (0, 1)}
        return [line for number, line in enumerate(lines) if number not in heads]


def test_results_grow_and_what_is_recorded_is_not_repeated(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = Fakes(results, trained, tmp_path, monkeypatch)
    tiny = "multi30k_tiny-en-de"
    tok = "multi30k_tok-en-de"
    fakes.fails = f"{tiny}-1"
    with pytest.raises(SystemExit, match="exit code 1"):
        fakes.call("--data", "text", "--only", tiny, tok)
    assert len(fakes.lines()) == 1
    fakes.fails = ""
    assert fakes.call("--data", "text", "--only", tiny, tok) == [f"{tiny}-1"]
    shutil.rmtree(tmp_path / "runs")
    assert fakes.call("--data", "text", "--only", tiny, tok, "--seeds", "2") == [
        f"{tiny}-2",
        f"{tok}-2",
    ]
    said = [
        dict(zip(columns(["BLEU", "chrF2"]), line.split(" | "), strict=False))
        for line in fakes.lines()
    ]
    assert [one["seeds"] for one in said] == ["2", "2"]


def test_ablations_grow_and_are_compared_with_one_baseline(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = Fakes(ablations, trained, tmp_path, monkeypatch)
    bleu = {"baseline": 30.0}

    def compared(systems: list[Path]) -> list[dict[str, Any]]:
        assert systems[0].name == "baseline"
        scores = [bleu.get(one.name, 31.0) for one in systems]
        rest = {"signature": "nrefs:1", "p_bootstrap": 0.5, "p_randomization": 0.5}
        differences = [None, *(score - scores[0] for score in scores[1:])]
        return [
            {"score": score, "difference": difference, **rest}
            for score, difference in zip(scores, differences, strict=True)
        ]

    monkeypatch.setattr(ablations, "compared", compared)
    monkeypatch.setattr(ablations, "alone", lambda run: compared([run])[0])
    asked = ("--data-root", str(tmp_path), "--updates", "40", "--only")
    assert fakes.call(*asked, "baseline") == ["baseline"]
    [only] = fakes.lines()
    assert "nothing" in only
    fakes.fails = "seed-2"
    with pytest.raises(SystemExit, match="seed-2: exit code 1"):
        fakes.call(*asked, "seed-2", "seed-3")
    assert fakes.begun == ["seed-2", "seed-3"]
    first, second = fakes.lines()
    assert "nothing" in first and "`seed=3`" in second and "+1.00" in second
    fakes.fails = ""
    assert fakes.call(*asked, "seed-2", "seed-3") == ["seed-2"]
    assert len(fakes.lines()) == 3
    bleu["baseline"] = 30.5
    with pytest.raises(
        SystemExit, match=r"has 30\.50 BLEU, and 30\.00 in .*; take all lines of 40"
    ):
        fakes.call(*asked, "loss-r_drop")
    assert len(fakes.lines()) == 3
    fakes.begun.clear()
    with pytest.raises(SystemExit, match=r"has no train\.de\.gz; set data\.root"):
        fakes.call("--data-root", str(tmp_path), "--only", "seed-2", "recipe-backtranslate")
    assert fakes.begun == []


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
