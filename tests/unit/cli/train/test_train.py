"""What the verb asks of a run before anything is trained."""

import logging
import multiprocessing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.types import RunMode
from omegaconf import DictConfig

from transformer.__main__ import main
from transformer.cli.config.compose import compose_config
from transformer.cli.train import ranks, train
from transformer.common.errors import InputError
from transformer.training.checkpointing.run_directory import locked
from transformer.training.distributed.rendezvous import Rank


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be trained."""
    runs: list[Any] = []
    monkeypatch.setattr(ranks, "_run", lambda *run: runs.append(run))
    monkeypatch.setattr(ranks, "log_to", lambda file, rank, **how: logging.getLogger(__name__))
    return runs


def swept() -> DictConfig:
    config: Any = compose_config("train", ["objective=val/loss"])
    config.checkpoint = None
    return config


def test_only_rank_0_asks_for_a_sweep(trained: list[Any], tmp_path: Path) -> None:
    """Rank 0 alone has the objective."""
    ranks.train_as_rank(1, swept(), tmp_path)
    assert len(trained) == 1
    with pytest.raises(InputError, match="objective=val/loss is for a sweep; add --multirun"):
        ranks.train_as_rank(0, swept(), tmp_path)
    assert len(trained) == 1


def test_a_sweep_is_refused_before_its_trials_train(
    trained: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimpleNamespace(
        mode=RunMode.MULTIRUN,
        overrides=SimpleNamespace(task=[]),
        runtime=SimpleNamespace(output_dir=tmp_path),
        sweeper={},
    )
    config = compose_config("train", ["objective=val/bleu", "metrics=exact"])
    monkeypatch.setattr(train, "HydraConfig", SimpleNamespace(get=lambda: job))
    with pytest.raises(InputError, match=r"^objective=val/bleu .* val/loss, val/exact_match, val/"):
        train._trial(config)
    config.objective = None
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    with pytest.raises(InputError, match=r"checkpoint=auto, or begin .* hydra\.sweep\.dir=FOLDER$"):
        train._trial(config)
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
        ranks.train_as_rank(0, compose_config("train", [override]), tmp_path / "run")
    assert not trained
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("exact", [True, False])
def test_every_rank_knows_whether_the_size_was_asked_for(
    trained: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    told: list[str] = []
    shrinks: list[object] = []

    def agreed(value: str) -> str:
        told.append(value)
        return told[0]

    monkeypatch.setattr(ranks, "with_largest", lambda config, learn: shrinks.append(learn()))
    monkeypatch.setattr(Rank, "agreed", lambda index, value: agreed(value))
    monkeypatch.setattr(ranks, "external_rank", lambda: Rank(0, 2, "first", 29500))
    # The text is not looked through.
    monkeypatch.setattr("transformer.data.quality.examination.log_faults", lambda config: [])
    ranks.train_as_rank(0, compose_config("train", []), tmp_path / "run", exact=exact)
    for module in (ranks, train):
        monkeypatch.setattr(module, "external_rank", lambda: Rank(1, 2, "first", 29500))
    train.run([])
    assert len(trained) == 2
    assert len(shrinks) == (0 if exact else 2)


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
        ranks.train_as_rank(0, compose_config("train", overrides), tmp_path / "run")
    said = str(caught.value).split("; also ")
    assert len(said) == len(parts)
    assert all(any(one.startswith(part) for one in said) for part in parts)


def test_a_folder_that_cannot_be_written_to_is_named(trained: list[Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OSError, match="/file"):  # one line, by cli/exit.py
            ranks.train_as_rank(0, compose_config("train", []), folder)
    assert not trained


def test_a_folder_where_another_process_trains_is_left_as_it_is(
    trained: list[Any], tmp_path: Path
) -> None:
    with multiprocessing.get_context("fork").Pool(1, _take, (tmp_path,)) as other:
        other.apply(int)
        with pytest.raises(InputError, match=f"another process trains in {tmp_path}; wait, stop"):
            ranks.train_as_rank(0, compose_config("train", []), tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {".lock", "train.log"}


HELD: list[Any] = []


def _take(folder: Path) -> None:
    HELD.append(locked(folder))
    HELD[0].__enter__()


@pytest.mark.parametrize("file", ["report.html", "metrics.csv"])
def test_a_run_that_ends_at_its_start_leaves_no_folder(tmp_path: Path, file: str) -> None:
    def fail() -> None:
        for name in ("config.yaml", "run.json", "report.json", file):
            (tmp_path / "run" / name).touch()
        raise InputError("no memory")

    with pytest.raises(InputError), ranks._new_directory(tmp_path / "run"):
        fail()
    assert (tmp_path / "run").exists() is (file == "metrics.csv")
