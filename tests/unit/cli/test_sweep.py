"""The jobs of a sweep: what is recorded of each, and the table at the end."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from transformer.__main__ import main
from transformer.cli import train
from transformer.cli.sweep import recorded, show_jobs, sweep_directory
from transformer.common.errors import InputError, Interrupted

pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")


def job(
    folder: Path, number: int, *task: str, launcher: str = "basic", sweeper: str = "basic"
) -> DictConfig:
    values: dict[str, Any] = {
        "job": {"num": number},
        "overrides": {"task": list(task)},
        "launcher": {"_target_": launcher},
        "sweeper": {"_target_": sweeper},
        "sweep": {"dir": str(folder)},
        "runtime": {"output_dir": str(folder / str(number))},
    }
    return OmegaConf.create(values)


def test_a_table_of_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nan = float("nan")
    for number, (rate, score) in enumerate([("0.001", 12.0), ("0.0031622776", 14.5), ("1", nan)]):
        task = ("data=files", f"optimizer.lr={rate}")
        with recorded(job(tmp_path, number, *task)) as record:
            record |= {"metric": "val/bleu", "score": score, "better": "higher"}
    for number, error in ((3, InputError("it diverges")), (4, KeyboardInterrupt())):
        with (
            pytest.raises(type(error)),
            recorded(job(tmp_path, number, "data=files", "optimizer.lr=2")),
        ):
            raise error
    show_jobs(tmp_path)
    title, header, *rows = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert title[1:] == ["5", "jobs,", "best", "1", "(val/bleu", "14.5000)"]
    # A key that is the same in all of them has no column.
    assert header == ["job", "optimizer.lr", "val/bleu", "folder"]
    assert rows[0][:3] == ["0", "0.001", "12.0000"]
    assert rows[1][:3] == ["1", "0.003162", "14.5000"]
    assert rows[1][3].endswith("/1")
    assert rows[3] == ["3", "2", "-", "it", "diverges"]
    assert rows[4] == ["4", "2", "-", "KeyboardInterrupt"]


def test_jobs_of_several_metrics_have_no_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = [("bleu", 31.0, "higher"), ("ter", 48.0, "lower"), ("ter", 60.0, "lower")]
    for number, (name, score, better) in enumerate(scores):
        with recorded(job(tmp_path, number, f"metrics.choose={name}")) as record:
            record |= {"metric": f"val/{name}", "score": score, "better": better}
    with pytest.raises(InputError), recorded(job(tmp_path, 3, "metrics.choose=x")):
        raise InputError("unknown")
    show_jobs(tmp_path)
    title, header, *rows = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert title[1:] == ["4", "jobs"]
    assert header == ["job", "metrics.choose", "metric", "score", "folder"]
    assert rows[1][:4] == ["1", "ter", "val/ter", "48.0000"]
    assert rows[3] == ["3", "x", "-", "-", "unknown"]


def test_ctrl_c_ends_the_sweep_and_not_one_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So it is in an allocation, where SLURM starts no job of the sweep.
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    # Hydra catches every Exception, and begins the next job.
    with pytest.raises(SystemExit) as end, recorded(job(tmp_path, 0)):
        raise Interrupted("stopped", code=130)
    assert end.value.code == 130
    submitted = job(tmp_path, 0, launcher="hydra_plugins.hydra_submitit_launcher.SlurmLauncher")
    with pytest.raises(Interrupted), recorded(submitted):
        raise Interrupted("stopped")


def test_a_bug_ends_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = job(tmp_path, 0, sweeper="hydra_plugins.hydra_optuna_sweeper.OptunaSweeper")
    with pytest.raises(SystemExit) as end, recorded(search):
        raise RuntimeError("a bug")
    assert end.value.code == 1
    assert "RuntimeError: a bug" in capsys.readouterr().err
    # Other sweeps show the traceback of Hydra, after all jobs.
    with pytest.raises(RuntimeError), recorded(job(tmp_path, 0)):
        raise RuntimeError("a bug")


def test_optuna_searches_what_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--multirun", "launch=optuna", "seed=1"]) == 2
    assert "error: launch=optuna is given nothing to search; name" in capsys.readouterr().err
    named = ["launch=optuna", "model.dropout=interval(0,0.3)", "experiment=pocket"]
    folder = sweep_directory(named)
    assert folder.parent == Path("multirun")
    assert sweep_directory(["seed=1", "hydra.sweep.dir=here", "experiment=pocket"]) == Path("here")


def test_a_trial_that_fails_does_not_end_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = [None, 2.0, 3.0, None, None]

    def run_trial(config: DictConfig) -> tuple[float, Any]:
        score = scores.pop(0)
        if score is None:
            raise InputError("it diverges")
        return score, SimpleNamespace(metric="val/bleu", direction="maximize")

    monkeypatch.setattr(train, "_run_trial", run_trial)
    monkeypatch.setattr("sys.argv", ["train.py"])
    search = ["train", "--multirun", "launch=optuna", "model.dropout=interval(0,0.3)"]
    sizes = ("hydra.sweeper.n_trials=3", f"hydra.sweep.dir={tmp_path}/some")
    assert main([*search, *sizes]) == 0
    assert "some: 3 jobs, best 2 (val/bleu 3.0000)" in capsys.readouterr().err
    sizes = ("hydra.sweeper.n_trials=2", f"hydra.sweep.dir={tmp_path}/none")
    assert main([*search, *sizes]) == 2
    *_, error = capsys.readouterr().err.splitlines()
    assert error.startswith("error: every job of the sweep failed")
