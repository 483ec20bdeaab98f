"""What a sweep leaves: its trials, best first, and only what they were not all called with."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from transformer.cli.train.sweep import NoteFolder, ranked, save_trial, summarised
from transformer.training.callbacks.sweep_objective import Objective

COMMON = "trainer.max_steps=5"


def trial(folder: Path, name: str, value: float, metric: str = "val/loss") -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    objective = Objective(metric)
    objective.best = value
    save_trial(folder / name, objective, [COMMON, f"optimizer.lr={name}", "data.x=[bold]"])


def begin(folder: Path) -> None:
    NoteFolder().on_multirun_start(OmegaConf.create({"hydra": {"sweep": {"dir": folder}}}))


def test_the_table_and_the_file_tell_the_best_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with summarised():
        begin(tmp_path)
        for name, value in (("0", 3.0), ("1", float("nan")), ("2", 2.5)):
            trial(tmp_path, name, value)
    said = capsys.readouterr()
    assert said.out == ""
    title, header, *rows = (line.split() for line in said.err.splitlines())
    assert (title, header) == ([str(tmp_path)], ["val/loss", "run", "directory", "overrides"])
    assert rows == [
        ["2.5000", "best", f"{tmp_path}/2", "optimizer.lr=2"],
        ["3.0000", f"{tmp_path}/0", "optimizer.lr=0"],
        ["nan", f"{tmp_path}/1", "optimizer.lr=1"],
    ]
    told = json.loads((tmp_path / "sweep.json").read_text())
    assert [each["value"] for each in told] == [2.5, 3.0, None]
    assert told[0]["overrides"] == ["optimizer.lr=2"]


def test_the_highest_is_first_when_maximized() -> None:
    trials = [
        {"run": run, "value": value, "direction": "maximize", "overrides": []}
        for run, value in (("a", 1.0), ("b", 2.0), ("c", 2.0))
    ]
    assert [each["run"] for each in ranked(trials)] == ["b", "c", "a"]


def test_trials_of_an_earlier_sweep_are_not_ranked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a/0", "a/1"):
        trial(tmp_path, name, 1.0)
    with summarised():
        begin(tmp_path)
        trial(tmp_path, "a/1", 2.0)
        trial(tmp_path, "\x1b[2J", 3.0)
    rows = capsys.readouterr().err.splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["2.0000", "3.0000"]
    assert "⟨U+001B⟩" in rows[1]


@pytest.mark.parametrize("damage", [None, "{", "[]", '{"run": 1}', "\xff"])
def test_a_sweep_that_fails_shows_the_trials_that_can_be_read(
    tmp_path: Path, damage: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="a trial"), summarised():
        begin(tmp_path)
        trial(tmp_path, "0", 30.0, "val/bleu")
        if damage is not None:
            trial(tmp_path, "1", 31.0, "val/bleu")
            (tmp_path / "1" / "trial.json").write_text(damage, "latin-1")
        raise ValueError("a trial")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.split() == ["30.0000", "best", f"{tmp_path}/0"]
