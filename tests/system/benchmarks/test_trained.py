"""What the benchmarks that train do: each run once, recorded when it is done, gone on with."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.support.records import UNKNOWN, code_version, machine
from benchmarks.support.trained import Trained, train_all

pytestmark = pytest.mark.thorough


def test_a_finished_run_is_known_and_not_repeated(trained: Trained, tmp_path: Path) -> None:
    log = trained.folder.with_name("run.log")
    before = log.read_text()
    trained.train(threads=1)
    assert log.read_text() == before
    assert [updates for updates, _ in trained.validated] == [2, 4]
    for (updates, values), validated in zip(trained.validations, trained.validated, strict=True):
        assert validated == (updates, values["bleu"]) and values.keys() >= {"chrf", "loss"}
    [call] = map(json.loads, trained.folder.with_name("run.calls.jsonl").read_text().splitlines())
    assert trained.commit == call["commit"] == (code_version()["commit"] or UNKNOWN)
    assert trained.calls.machine == machine(1) and "1 of " in machine(1)
    assert 0 < trained.hours == call["seconds"] / 3600
    shutil.copytree(trained.folder, tmp_path / "run")
    moved = Trained(trained.overrides, tmp_path / "run")
    with pytest.raises(SystemExit, match=r"run\.calls\.jsonl is not there, which says how long"):
        moved.train(threads=1)


def test_a_run_of_other_settings_is_refused_before_training(
    trained: Trained, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(trained.folder / "config.yaml", folder)
    new = Trained(trained.overrides, tmp_path / "new")
    other = Trained((*trained.overrides, "model.dropout=0.2"), folder)
    with pytest.raises(SystemExit, match=r"holds a run with another model\.dropout than"):
        list(train_all([new, other], processes=1, threads=1))
    assert not new.folder.exists()
