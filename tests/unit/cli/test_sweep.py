"""The jobs of a sweep: what is recorded of each, and the table at the end."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from transformer.__main__ import main
from transformer.cli.sweep import recorded, show_jobs, sweep_directory
from transformer.common.errors import InputError, Interrupted

pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")


def job(folder: Path, number: int, *task: str) -> DictConfig:
    values: dict[str, Any] = {
        "job": {"num": number},
        "overrides": {"task": list(task)},
        "sweep": {"dir": str(folder)},
        "runtime": {"output_dir": str(folder / str(number))},
    }
    return OmegaConf.create(values)


def test_a_table_of_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rates = ("0.001", "0.0031622776601", "0.01")
    for number, (rate, score) in enumerate(zip(rates, (12.0, 14.5, None), strict=True)):
        task = ("data=files", f"optimizer.lr={rate}")
        try:
            with recorded(job(tmp_path, number, *task)) as record:
                if score is None:
                    raise InputError("it diverges")
                record |= {"metric": "val/bleu", "score": score, "better": "higher"}
        except InputError:
            pass
    show_jobs(tmp_path)
    title, header, *rows = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert title[1:] == ["3", "jobs,", "best", "1", "(val/bleu", "14.5000)"]
    # A key that is the same in all of them has no column.
    assert header == ["job", "optimizer.lr", "val/bleu", "folder"]
    assert [row[:3] for row in rows[:2]] == [
        ["0", "0.001", "12.0000"],
        ["1", "0.003162", "14.5000"],
    ]
    assert rows[1][3].endswith("/1")
    assert rows[2] == ["2", "0.01", "-", "it", "diverges"]


def test_jobs_without_a_number_are_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, score in enumerate((float("nan"), 2.0)):
        with recorded(job(tmp_path, number)) as record:
            record |= {"metric": "val/loss", "score": score, "better": "lower"}
    # A second Ctrl-C, or one before the training.
    with pytest.raises(KeyboardInterrupt), recorded(job(tmp_path, 2)):
        raise KeyboardInterrupt
    show_jobs(tmp_path)
    title, _, *rows = capsys.readouterr().err.splitlines()
    assert "best 1 (val/loss 2.0000)" in title
    assert rows[2].split() == ["2", "-", "KeyboardInterrupt"]


def test_ctrl_c_ends_the_sweep_and_not_one_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    # Hydra catches every Exception, and begins the next job.
    with pytest.raises(SystemExit) as end, recorded(job(tmp_path, 0)):
        raise Interrupted("stopped", code=130)
    assert end.value.code == 130
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(Interrupted), recorded(job(tmp_path, 0)):
        raise Interrupted("stopped")


def test_optuna_searches_what_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--multirun", "launch=optuna", "seed=1"]) == 2
    assert "error: launch=optuna is given nothing to search; name" in capsys.readouterr().err
    folder = sweep_directory(["launch=optuna", "model.dropout=interval(0,0.3)"])
    assert folder.parent == Path("multirun")
    assert sweep_directory(["seed=1", "hydra.sweep.dir=here"]) == Path("here")
