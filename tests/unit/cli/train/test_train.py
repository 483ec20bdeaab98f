"""What the verb asks of a run before anything is trained."""

from pathlib import Path
from typing import Any

import pytest

from transformer.__main__ import main
from transformer.cli import train
from transformer.cli.config import compose_config, run_settings
from transformer.common.errors import InputError
from transformer.runs.processes import RankCall
from transformer.settings.run import RunConfig
from transformer.training import cpu_allocator
from transformer.training.distributed.ranks import Rank


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be trained."""
    runs: list[Any] = []
    monkeypatch.setattr("transformer.runs.train.train", lambda *run, **how: runs.append(how))
    monkeypatch.setattr(train, "log_to_stderr", lambda *run, **how: None)
    monkeypatch.setattr(cpu_allocator, "keep_freed_memory", lambda: True)
    return runs


def settings(*overrides: str) -> RunConfig:
    return run_settings(compose_config("train", overrides))


def test_only_rank_0_asks_for_a_sweep(trained: list[Any], tmp_path: Path) -> None:
    """Rank 0 alone has the objective."""
    train.train_as_rank(1, RankCall(settings("objective=val/loss"), tmp_path))
    assert len(trained) == 1
    with pytest.raises(InputError, match="objective=val/loss is for a sweep; add --multirun"):
        train.train_as_rank(0, RankCall(settings("objective=val/loss"), tmp_path))
    assert len(trained) == 1


def test_a_sweep_is_refused_before_its_trials_train(
    trained: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py"])
    sweep = ["--multirun", "metrics=exact", f"hydra.sweep.dir={tmp_path}"]
    assert main(["train", *sweep, "objective=val/bleu"]) == 2
    error = capsys.readouterr().err
    assert "error: objective=val/bleu is not there" in error
    assert "val/loss, val/exact_match" in error
    assert not trained


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("optimizer.lr=nan", "optimizer.lr=nan must be above 0"),
        ("precision=64-true", "precision='64-true' must be 32-true or bf16-mixed"),
        ("trainer.strategy=deepspeed", "must be auto or ddp or fsdp"),
        ("trainer.log_every_n_steps=0", "trainer.log_every_n_steps=0 must be at least 1"),
        ("data.prepare_workers=-1", "data.prepare_workers=-1 must be at least 0"),
    ],
)
def test_wrong_values_are_refused_before_anything_is_written(
    trained: list[Any], tmp_path: Path, override: str, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        train.train_as_rank(0, RankCall(settings(override), tmp_path / "run"))
    assert not trained
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("fit", [True, False])
def test_every_rank_knows_whether_the_size_was_asked_for(
    trained: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fit: bool
) -> None:
    told: list[str] = []

    def agreed(value: str) -> str:
        told.append(value)
        return told[0]

    monkeypatch.setattr(Rank, "agreed", lambda index, value: agreed(value))
    monkeypatch.setattr(train, "external_rank", lambda: Rank(0, 2, "first", 29500))
    train.train_as_rank(0, RankCall(settings(), tmp_path / "run", fit_vocabulary=fit))
    monkeypatch.setattr(train, "external_rank", lambda: Rank(1, 2, "first", 29500))
    monkeypatch.setattr(train, "end_rank", lambda: None)
    train.run_train([])
    assert [how["fit_vocabulary"] for how in trained] == [fit] * 2


def test_a_search_without_multirun_is_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "launch=optuna", "seed=2"]) == 2
    assert capsys.readouterr().err == "error: launch=optuna is for a sweep; add --multirun\n"
    for trust, said in (("yes", "must be trust=true or trust=false"), ("true", "is for a check")):
        assert main(["train", f"trust={trust}"]) == 2
        assert capsys.readouterr().err.startswith(f"error: trust={trust} {said}")


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["model.norm=rmsnorm", "model.activation=silu"], ["model.norm='rms", "model.activation"]),
        (["model.dropout=2", "model.num_heads=0"], ["model.num_heads=0 must", "model.dropout=2"]),
        (
            ["decoding.temperature=0.7", "decoding.groups=2"],
            ["decoding.temperature=0.7 has no", "decoding.groups=2 has no"],
        ),
    ],
)
def test_all_that_is_wrong_with_a_group_is_told_at_once(
    trained: list[Any], tmp_path: Path, overrides: list[str], parts: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        train.train_as_rank(0, RankCall(settings(*overrides), tmp_path / "run"))
    said = str(caught.value).split("; also ")
    assert len(said) == len(parts)
    assert all(any(one.startswith(part) for one in said) for part in parts)
