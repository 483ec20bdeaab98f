"""Which checkpoints are written when, with a trainer that only records."""

import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pytorch_lightning import LightningModule

from tests.helpers.training.fakes import fake_trainer
from transformer.common.errors import AnotherRankFailed, InputError
from transformer.training.callbacks.best_score import Patience
from transformer.training.checkpointing import callbacks
from transformer.training.checkpointing.callbacks import (
    BestCheckpoint,
    LastCheckpoint,
    RecentCheckpoints,
)
from transformer.training.checkpointing.checkpoint_io import AtomicCheckpointIO
from transformer.training.model_selection import ModelSelection
from transformer.training.optimization import DivergenceDetector


class Disk(AtomicCheckpointIO):
    """A disk that may be full."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False


def saving_trainer(step: int = 0, score: float = 0.0) -> tuple[Mock, list[str]]:
    """A trainer in training, and the names of the files it has written, with the update."""
    trainer = fake_trainer(global_step=step, fit_loop=Mock())
    written: list[str] = []
    disk = Disk()
    trainer.strategy.checkpoint_io = disk
    trainer.strategy.broadcast = lambda value: value
    trainer.callback_metrics = {"val/x": score}

    def save(path: Path, weights_only: bool) -> None:
        disk.error = InputError("full") if disk.full else None
        if not disk.full:
            path.touch()
            written.append(f"{path.stem} {trainer.global_step}")

    trainer.save_checkpoint = save
    return trainer, written


def module(in_a_row: int = 0, returned: int = 0) -> Mock:
    detector = Mock(spec=DivergenceDetector, in_a_row=in_a_row, returned=returned)
    return Mock(spec=LightningModule, detector=detector)


def run(last: LastCheckpoint, trainer: Mock, until: int, bad: tuple[int, ...] = ()) -> None:
    while trainer.global_step < until:
        last.on_train_batch_start(trainer, module(trainer.global_step in bad), None, 0)
        trainer.global_step += 1


def test_the_last_is_written_at_start_interval_and_end(tmp_path: Path) -> None:
    last, (trainer, written) = LastCheckpoint(tmp_path, 3), saving_trainer()
    last.on_train_start(trainer, module())
    run(last, trainer, 8)
    last.on_train_end(trainer, module())
    assert written == ["last 0", "last 3", "last 6", "last 8"]
    last.on_train_end(trainer, module())
    assert len(written) == 4  # nothing new to write
    trainer, written = saving_trainer(8)
    last = LastCheckpoint(tmp_path, None)
    last.on_train_start(trainer, module())
    run(last, trainer, 20)
    assert written == []


def test_what_killed_ranks_were_writing_is_removed(tmp_path: Path) -> None:
    ours = ("last.ckpt.0f.part", "step-00000008.ckpt.a.part")
    others = ("last.ckpt", "step-00000008.ckpt", "tuned.ckpt.0f.part")
    for name in (*ours, *others):
        (tmp_path / name).touch()
    LastCheckpoint(tmp_path, None).on_train_start(saving_trainer()[0], module())
    assert {path.name for path in tmp_path.iterdir()} == {*others}


def test_the_last_is_written_before_a_validation(tmp_path: Path) -> None:
    last, (trainer, written) = LastCheckpoint(tmp_path, 100), saving_trainer(5)
    last.on_train_start(trainer, module())
    assert last.state_dict() == {"validates": False}
    last.on_validation_start(trainer, module())
    assert last.state_dict() == {"validates": True}
    last.on_validation_epoch_end(trainer, module())
    assert last.state_dict() == {"validates": False}
    assert written == ["last 5", "last 5"]
    last.on_train_end(trainer, module())
    assert len(written) == 3  # that the validation is over is new


def test_the_last_is_not_written_while_updates_are_bad(tmp_path: Path) -> None:
    last, (trainer, written) = LastCheckpoint(tmp_path, 3), saving_trainer()
    last.on_train_start(trainer, module())
    run(last, trainer, 6, bad=(3, 4))
    last.on_validation_start(trainer, module(in_a_row=1))
    last.on_validation_epoch_end(trainer, module(in_a_row=1))
    assert written == ["last 0", "last 5"]
    last.on_train_end(trainer, module(in_a_row=1))
    assert written[2:] == ["last 6"]


def test_a_run_that_has_gone_back_writes_so_at_once(tmp_path: Path) -> None:
    for returned, expected in ((0, []), (1, ["last 7"])):
        (tmp_path / "last.ckpt").touch()
        last, (trainer, written) = LastCheckpoint(tmp_path, 3), saving_trainer(7)
        last.on_train_start(trainer, module(returned=returned))
        assert written == expected


def test_what_a_run_begins_with_must_be_written(tmp_path: Path) -> None:
    for rank_0, error in ((True, InputError), (False, AnotherRankFailed)):
        last, (trainer, _) = LastCheckpoint(tmp_path, 2), saving_trainer()
        trainer.is_global_zero = rank_0
        trainer.strategy.checkpoint_io.full = True
        with pytest.raises(error, match="full"):
            last.on_train_start(trainer, module())
        # An error at the end is raised, too; training goes on before.
        trainer.strategy.checkpoint_io.full = False
        last.on_train_start(trainer, module())
        trainer.strategy.checkpoint_io.full = True
        run(last, trainer, 5)
        with pytest.raises(error, match="full"):
            last.on_train_end(trainer, module())
        last.path.unlink()


@pytest.mark.parametrize("stops", [False, True])
def test_tuned_and_tested_are_of_before_where_training_goes_on(tmp_path: Path, stops: bool) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "tuned.ckpt").touch()
    (tmp_path / "test.json").touch()
    last, (trainer, _) = LastCheckpoint(folder, 2), saving_trainer()
    trainer.should_stop = stops
    last.on_train_start(trainer, module())
    assert (folder / "tuned.ckpt").exists() == stops == (tmp_path / "test.json").exists()
    assert len(list(folder.glob("outdated-tuned-*"))) == (not stops)
    assert len(list(tmp_path.glob("outdated-test-*"))) == (not stops)


@pytest.mark.parametrize("time_is_up", [False, True])
def test_a_validation_still_due_runs_though_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time_is_up: bool
) -> None:
    stops_before = []
    monkeypatch.setattr(callbacks, "validate_now", lambda one: stops_before.append(one.should_stop))
    last, (trainer, _) = LastCheckpoint(tmp_path, 2), saving_trainer()
    trainer.fit_loop, trainer.max_steps, trainer.should_stop = Mock(), 9, time_is_up
    last.load_state_dict({"validates": True})
    # Lightning begins no training that is to stop, or has made all its updates.
    last.on_fit_start(trainer, module())
    assert (trainer.should_stop, trainer.fit_loop.epoch_loop.max_steps) == (False, -1)
    last.on_train_start(trainer, module())
    assert stops_before == [False]
    assert (trainer.should_stop, trainer.fit_loop.epoch_loop.max_steps) == (time_is_up, 9)


def validate(best: Any, trainer: Mock, *scores: float) -> None:
    for score in scores:
        trainer.global_step += 1
        trainer.callback_metrics = {"val/x": score, "val/loss": 1.0}
        best.on_validation_end(trainer, module())


@pytest.mark.parametrize(("mode", "scores"), [("max", (1, 3, 3, 2, 4)), ("min", (4, 2, 2, 3, 1))])
def test_the_best_is_better_than_all_before(
    tmp_path: Path, mode: Any, scores: tuple[float, ...]
) -> None:
    best = BestCheckpoint(tmp_path, ModelSelection("val/x", mode))
    trainer, written = saving_trainer()
    validate(best, trainer, *scores)
    assert written == ["best 1", "best 2", "best 5"]


def test_of_equal_scores_that_of_the_lower_loss_is_better(tmp_path: Path) -> None:
    selection, (trainer, written) = ModelSelection("val/x", "max"), saving_trainer()
    best, patience, waited = BestCheckpoint(tmp_path, selection), Patience(selection, 9), []
    for loss in (3.0, 2.0, 2.0, 2.5, math.nan, 1.0):
        trainer.global_step += 1
        trainer.callback_metrics = {"val/x": 0.0, "val/loss": loss}
        for callback in (best, patience):
            callback.on_validation_end(trainer, module())
        waited.append(patience.waited)
    assert written == ["best 1", "best 2", "best 6"]
    assert waited == [0, 0, 1, 2, 3, 0]


def test_nan_is_never_better_and_the_first_number_after_it_is(tmp_path: Path) -> None:
    selection, (trainer, written) = ModelSelection("val/loss", "min"), saving_trainer()
    best, patience, waited = BestCheckpoint(tmp_path, selection), Patience(selection, 9), []
    for loss in (math.nan, math.nan, 3.0, math.nan, 2.0):
        trainer.global_step += 1
        trainer.callback_metrics = {"val/loss": loss}
        for callback in (best, patience):
            callback.on_validation_end(trainer, module())
        waited.append(patience.waited)
    assert written == ["best 3", "best 5"]
    assert waited == [1, 2, 0, 1, 0]
    # In a tie, a loss of NaN is the worse one.
    assert selection.better((1.0, 1.0), (1.0, math.nan))
    assert not selection.better((1.0, math.nan), (1.0, 1.0))


def test_the_best_score_goes_with_the_directory_wherever_it_is(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    best, (trainer, _) = BestCheckpoint(here, ModelSelection("val/x", "max")), saving_trainer()
    validate(best, trainer, 7)
    here.rename(there)
    moved, (trainer, written) = BestCheckpoint(there, best.selection), saving_trainer(1)
    moved.load_state_dict(best.state_dict())
    moved.on_train_start(trainer, module())
    validate(moved, trainer, 6, 8)
    assert written == ["best 3"]
    moved.path.unlink()
    moved.on_train_start(trainer, module())
    validate(moved, trainer, 6)
    assert written == ["best 3", "best 4"]


def test_a_best_that_was_not_written_is_not_to_beat(tmp_path: Path) -> None:
    best = BestCheckpoint(tmp_path, ModelSelection("val/x", "max"))
    trainer, written = saving_trainer()
    validate(best, trainer, 5)
    trainer.strategy.checkpoint_io.full = True
    validate(best, trainer, 7)
    trainer.strategy.checkpoint_io.full = False
    validate(best, trainer, 6)
    assert written == ["best 1", "best 3"]
    # All ranks know what rank 0 could not write.
    best, (trainer, _) = BestCheckpoint(tmp_path, ModelSelection("val/x", "max")), saving_trainer()
    validate(best, trainer, 5)
    trainer.strategy.broadcast = lambda value: "full"  # this rank itself has seen no error
    validate(best, trainer, 7)
    assert best.best == (5, 1)
    trainer.strategy.broadcast = lambda value: ""  # nor does an error of its own count
    trainer.strategy.checkpoint_io.full = True
    validate(best, trainer, 6)
    assert best.best == (6, 1)


@pytest.mark.parametrize(("keep", "expected"), [(2, [3, 4]), (-1, [1, 2, 3, 4]), (0, [])])
def test_the_newest_few_are_kept(tmp_path: Path, keep: int, expected: list[int]) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    recent, (trainer, _) = RecentCheckpoints(folder, keep), saving_trainer()
    validate(recent, trainer, 1, 1, 1, 1)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"step-{step:08d}.ckpt" for step in expected]
    # The run has gone back.
    recent.on_train_start(saving_trainer(3)[0], module())
    assert len(list(folder.iterdir())) == len([step for step in expected if step <= 3])
