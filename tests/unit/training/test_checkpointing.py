"""Checkpoints in training: which are written when, what is set aside, what a run resumes with."""

import math
import os
from collections.abc import Iterable
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pytorch_lightning import LightningModule

from tests.helpers.model.models import tiny_payload, tiny_transformer
from tests.helpers.training.fakes import fake_trainer
from tests.helpers.training.sharded import payload, write
from transformer.checkpoint.archive import SHARDS
from transformer.checkpoint.checkpoint import write_payload
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.checkpoint.sharded import SUFFIX
from transformer.common.errors import AnotherRankFailed, InputError
from transformer.settings.training import OptimizerConfig, ScheduleConfig
from transformer.training.callbacks.best_score import Patience
from transformer.training.checkpointing import (
    AtomicCheckpointIO,
    BestCheckpoint,
    LastCheckpoint,
    RecentCheckpoints,
    check_saved_state,
    consolidate,
    find_resumable,
    optimizer_state,
    schedule_state,
    set_aside_outdated,
    set_aside_unused,
)
from transformer.training.model_selection import ModelSelection
from transformer.training.optimization import DivergenceDetector, build_optimizer, build_schedule


class Disk(AtomicCheckpointIO):
    """A disk that may be full."""

    is_full = False


def saving_trainer(step: int = 0, **values: Any) -> tuple[Mock, list[str]]:
    """A trainer in training, and the names of the files that it writes, with the update."""
    trainer = fake_trainer(global_step=step, max_steps=99, fit_loop=Mock())
    written: list[str] = []
    disk = Disk()
    trainer.strategy.checkpoint_io = disk
    trainer.strategy.broadcast = lambda value: value
    trainer.callback_metrics = values

    def save(path: Path, weights_only: bool) -> None:
        disk.error = InputError("full") if disk.is_full else None
        if not disk.is_full:
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


def validate(callbacks: Iterable[Any], trainer: Mock, score: float, loss: float = 1.0) -> None:
    trainer.global_step += 1
    trainer.callback_metrics = {"val/x": score, "val/loss": loss}
    for callback in callbacks:
        callback.on_validation_end(trainer, module())


def test_the_last_is_written_at_start_interval_and_end(tmp_path: Path) -> None:
    last = LastCheckpoint(tmp_path, 3)
    trainer, written = saving_trainer()
    last.on_train_start(trainer, module())
    run(last, trainer, 8)
    for _ in range(2):  # the second time there is nothing new to write
        last.on_train_end(trainer, module())
        assert written == ["last 0", "last 3", "last 6", "last 8"]
    # A resumed run does not write at its start, unless it has returned after a divergence.
    for returned, expected in ((0, []), (1, ["last 8"])):
        last = LastCheckpoint(tmp_path, None)
        trainer, written = saving_trainer(8)
        last.on_train_start(trainer, module(returned=returned))
        run(last, trainer, 20)
        assert written == expected


def test_the_last_is_written_before_a_validation_and_knows_that_it_follows(tmp_path: Path) -> None:
    last = LastCheckpoint(tmp_path, 100)
    trainer, written = saving_trainer(5)
    last.on_train_start(trainer, module())
    last.on_validation_start(trainer, module())
    assert last.state_dict() == {"validates": True}
    last.on_validation_epoch_end(trainer, module())
    assert last.state_dict() == {"validates": False}
    assert written == ["last 5", "last 5"]
    last.on_train_end(trainer, module())
    assert len(written) == 3  # the end of the validation is new


def test_the_last_is_not_written_while_updates_are_bad(tmp_path: Path) -> None:
    last = LastCheckpoint(tmp_path, 3)
    trainer, written = saving_trainer()
    last.on_train_start(trainer, module())
    run(last, trainer, 6, bad=(3, 4))
    last.on_validation_start(trainer, module(in_a_row=1))
    last.on_validation_epoch_end(trainer, module(in_a_row=1))
    assert written == ["last 0", "last 5"]
    last.on_train_end(trainer, module(in_a_row=1))
    assert written[2:] == ["last 6"]


@pytest.mark.parametrize(("is_rank_0", "error"), [(True, InputError), (False, AnotherRankFailed)])
def test_first_and_final_checkpoint_must_be_written(
    tmp_path: Path, is_rank_0: bool, error: type[Exception]
) -> None:
    last = LastCheckpoint(tmp_path, 2)
    trainer, _ = saving_trainer()
    trainer.is_global_zero = is_rank_0
    disk = trainer.strategy.checkpoint_io
    disk.is_full = True
    with pytest.raises(error, match="full"):
        last.on_train_start(trainer, module())
    disk.is_full = False
    last.on_train_start(trainer, module())
    disk.is_full = True
    run(last, trainer, 5)
    with pytest.raises(error, match="full"):
        last.on_train_end(trainer, module())


def test_the_file_to_resume_from_is_restored_if_no_first_checkpoint_can_be_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "last.ckpt").write_text("newest")
    trainer, _ = saving_trainer()
    trainer.ckpt_path = tmp_path / "best.ckpt"
    trainer.strategy.checkpoint_io.is_full = True
    with pytest.raises(InputError):
        LastCheckpoint(tmp_path, 2).on_train_start(trainer, module())
    assert (tmp_path / "last.ckpt").read_text() == "newest"


def test_parts_of_files_that_killed_processes_wrote_are_removed(tmp_path: Path) -> None:
    parts = ("last.ckpt.0f.part", "step-00000008.ckpt.a.part")
    kept = ("last.ckpt", "step-00000008.ckpt", "tuned.ckpt.0f.part")
    for name in (*parts, *kept):
        (tmp_path / name).touch()
    trainer, _ = saving_trainer()
    LastCheckpoint(tmp_path, None).on_train_start(trainer, module())
    assert {path.name for path in tmp_path.iterdir()} == {*kept}


@pytest.mark.parametrize("stops", [False, True])
def test_training_sets_tuned_weights_and_test_results_aside(tmp_path: Path, stops: bool) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "tuned.ckpt").touch()
    (tmp_path / "test.json").touch()
    trainer, _ = saving_trainer()
    trainer.should_stop = stops
    LastCheckpoint(folder, 2).on_train_start(trainer, module())
    assert (folder / "tuned.ckpt").exists() == stops == (tmp_path / "test.json").exists()


@pytest.mark.parametrize("time_is_up", [False, True])
def test_a_validation_that_is_due_runs_although_training_is_over(
    tmp_path: Path, time_is_up: bool
) -> None:
    last = LastCheckpoint(tmp_path, 2)
    trainer, _ = saving_trainer()
    trainer.max_steps = 9
    trainer.should_stop = time_is_up
    stops: list[bool] = []
    loop = trainer.fit_loop.epoch_loop
    loop._batches_that_stepped = 9
    loop.val_loop.run.side_effect = lambda: stops.append(trainer.should_stop)
    last.load_state_dict({"validates": True})
    # Lightning begins no training that is to stop, or has made all its updates.
    last.on_fit_start(trainer, module())
    assert (trainer.should_stop, loop.max_steps) == (False, -1)
    last.on_train_start(trainer, module())
    assert stops == [False]
    assert (trainer.should_stop, loop.max_steps) == (time_is_up, 9)


NAN = math.nan


@pytest.mark.parametrize(
    ("mode", "scores_and_losses", "written", "waited"),
    [
        ("max", [(1, 1), (3, 1), (3, 1), (2, 1), (4, 1)], [1, 2, 5], [0, 0, 1, 2, 0]),
        ("min", [(4, 1), (2, 1), (2, 1), (3, 1), (1, 1)], [1, 2, 5], [0, 0, 1, 2, 0]),
        # Of equal scores that of the lower loss is better; in a tie, a loss of NaN is the worse.
        ("max", [(0, 3), (0, 2), (0, 2), (0, NAN), (0, 1)], [1, 2, 5], [0, 0, 1, 2, 0]),
        ("max", [(0, NAN), (0, 1)], [1, 2], [0, 0]),
        # A score of NaN is never better, and the first number after it is.
        ("min", [(NAN, 1), (NAN, 1), (3, 1), (NAN, 1), (2, 1)], [3, 5], [1, 2, 0, 1, 0]),
    ],
)
def test_the_best_is_better_than_all_before(
    tmp_path: Path,
    mode: Any,
    scores_and_losses: list[tuple[float, float]],
    written: list[int],
    waited: list[int],
) -> None:
    selection = ModelSelection("val/x", mode)
    best = BestCheckpoint(tmp_path, selection)
    patience = Patience(selection, 9)
    trainer, files = saving_trainer()
    waits = []
    for score, loss in scores_and_losses:
        validate([best, patience], trainer, score, loss)
        waits.append(patience.waited)
    assert files == [f"best {update}" for update in written]
    assert waits == waited


def test_the_best_score_moves_with_the_directory(tmp_path: Path) -> None:
    selection = ModelSelection("val/x", "max")
    former = BestCheckpoint(tmp_path, selection)
    trainer, _ = saving_trainer()
    validate([former], trainer, 7)
    there = (tmp_path / "best.ckpt").rename(tmp_path.with_name("there.ckpt")).parent / "there"
    there.mkdir()
    there.with_suffix(".ckpt").rename(there / "best.ckpt")
    moved = BestCheckpoint(there, selection)
    trainer, written = saving_trainer(1)
    moved.load_state_dict(former.state_dict())
    moved.on_train_start(trainer, module())
    validate([moved], trainer, 6)
    validate([moved], trainer, 8)
    assert written == ["best 3"]
    # Without its file, the score counts no more.
    moved.path.unlink()
    moved.on_train_start(trainer, module())
    validate([moved], trainer, 6)
    assert written == ["best 3", "best 4"]


def test_a_best_checkpoint_that_was_not_written_does_not_count(tmp_path: Path) -> None:
    best = BestCheckpoint(tmp_path, ModelSelection("val/x", "max"))
    trainer, written = saving_trainer()
    disk = trainer.strategy.checkpoint_io
    for score, is_full in ((5, False), (7, True), (6, False)):
        disk.is_full = is_full
        validate([best], trainer, score)
    assert written == ["best 1", "best 3"]
    # All ranks follow rank 0, whether they have an error of their own or not.
    trainer.strategy.broadcast = lambda value: "full"
    validate([best], trainer, 7)
    assert best.best == (6, 1)
    trainer.strategy.broadcast = lambda value: ""
    disk.is_full = True
    validate([best], trainer, 8)
    assert best.best == (8, 1)


@pytest.mark.parametrize(("keep", "expected"), [(2, [3, 4]), (-1, [1, 2, 3, 4]), (0, [])])
def test_the_newest_few_are_kept(tmp_path: Path, keep: int, expected: list[int]) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    recent = RecentCheckpoints(folder, keep)
    trainer, _ = saving_trainer(-1)
    for _ in range(5):  # the first one is before the first update
        validate([recent], trainer, 1)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"step-{step:08d}.ckpt" for step in expected]
    # After a return to an earlier update, later ones go.
    trainer, _ = saving_trainer(3)
    recent.on_train_start(trainer, module())
    assert len(list(folder.iterdir())) == len([step for step in expected if step <= 3])


def test_outdated_files_are_kept_with_the_time_at_which_they_were_written(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "best.ckpt").touch()
    set_aside_outdated(tmp_path)
    for day in (1, 2):
        written = datetime(2026, 5, day, 12).timestamp()
        files = [folder / "tuned.ckpt", tmp_path / "test_2017.json", tmp_path / "test_2017.hyp"]
        for file in files:
            file.write_text(str(day))
            os.utime(file, (written, written))
        set_aside_outdated(tmp_path)
        assert find_checkpoint(tmp_path) == folder / "best.ckpt"
        for file in files:
            aside = file.with_name(f"outdated-{file.stem}-2026-05-0{day}_12-00-00{file.suffix}")
            assert aside.read_text() == str(day) and not file.exists()


def test_the_last_is_kept_if_training_resumes_from_another_file(tmp_path: Path) -> None:
    last = tmp_path / "last.ckpt"
    last.write_text("newest")
    os.utime(last, (datetime(2026, 5, 1, 12).timestamp(),) * 2)
    for resume in (None, last, tmp_path / "." / "last.ckpt"):
        set_aside_unused(tmp_path, resume)
        assert last.exists()
    for _ in range(2):
        set_aside_unused(tmp_path, tmp_path / "best.ckpt")
        assert (tmp_path / "unused-last-2026-05-01_12-00-00.ckpt").read_text() == "newest"
        assert not last.exists()


def test_whole_parts_become_one_file_and_damaged_ones_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 0).rename(tmp_path / "unused-last.ckpt")
    part = next(tmp_path.glob(f"*{SUFFIX}/__1*"))
    part.write_bytes(part.read_bytes()[:-40])
    for seed in (1, 2):
        write(tmp_path, seed)
    consolidate(tmp_path)
    # The file before the newest is not replaced by it.
    for name, seed in (("previous", 1), ("last", 2)):
        read = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)
        assert torch.equal(read["state_dict"]["a"], payload(seed)["state_dict"]["a"])
        assert SHARDS not in read
    assert SHARDS in torch.load(tmp_path / "unused-last.ckpt", weights_only=True)
    assert f"{part.parent} do not fit their index" in caplog.text
    assert [path.name for path in tmp_path.glob(f"*{SUFFIX}")] == [part.parent.name]


LOADER: dict[str, Any] = {
    "identity": {"pairs": 3, "seed": 1},
    "row": None,
    "epoch_length": 4,
    "ranks": 1,
    "accumulation": 1,
    "first": 0,
    "since": 0,
}


def loops(**changes: Any) -> dict[str, Any]:
    return {"fit_loop": {"state_dict": {"combined_loader": [LOADER | changes]}}}


STATE: dict[str, Any] = {
    "epoch": 0,
    "global_step": 7,
    "optimizer_states": [],
    "loops": loops(),
    "callbacks": {
        "BestCheckpoint": {"best": [1.5, 2.0]},
        "LastCheckpoint": {"validates": False},
        "Patience": {"best": None, "waited": 0},
        "Objective": {"metric": "val/bleu", "best": None},
        "MovingAverage": {"latest_update_step": 0},
    },
    "recovery": {"losses": [1.0], "in_a_row": 0, "skipped": 0, "returned": 0, "lr": 1e-3},
    "measured": {
        "loss": 1.0,
        "alignment": [0.0, 0.0],
        "consistency": None,
        "learned": 1,
        "counted": [1, 1],
    },
}


@pytest.mark.parametrize("row", [None, {"partitions": [{"pending": [{"used": 3}]}]}])
def test_a_state_that_training_writes_is_accepted(row: Any) -> None:
    check_saved_state(STATE | {"loops": loops(row=row)}, Path("x.ckpt"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_step": -1}, "global_step=-1 must be at least 0"),
        ({"callbacks": 3}, "callbacks=3 must be a mapping"),
        ({"callbacks": {"LastCheckpoint": {"validates": 1}}}, "validates=1 must be true or false"),
        ({"recovery": STATE["recovery"] | {"losses": ["x"]}}, r"recovery\.losses='x' must be a"),
        ({"measured": []}, r"measured=\[\] must be a mapping"),
        ({"records": {"wandb": 3}}, r"records\.wandb=3"),
        ({"loops": []}, "loops=.* must be a mapping"),
        ({"loops": loops(ranks=0)}, r"loops\.ranks=0 must be at least 1"),
        ({"loops": loops(first=None)}, r"loops\.first=null must be a whole number"),
    ],
)
def test_a_state_that_training_does_not_write_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=rf"^x\.ckpt: .*{message}"):
        check_saved_state(STATE | changes, Path("x.ckpt"))


@pytest.mark.parametrize("group", ["", "recovery", "callbacks.BestCheckpoint"])
def test_every_missing_key_is_named(tmp_path: Path, group: str) -> None:
    def inside(payload: dict[str, Any]) -> dict[str, Any]:
        for name in group.split(".") if group else ():
            payload = payload[name]
        return payload

    required = ("global_step", "loops", "callbacks", "recovery", "measured")
    for key in inside(STATE) if group else required:
        state = tiny_payload(**deepcopy(STATE))
        del inside(state)[key]
        write_payload(state, tmp_path / "x.ckpt")
        name = f"{group}.{key}" if group else key
        with pytest.raises(InputError, match=rf"x\.ckpt: {name} is missing"):
            find_resumable(tmp_path / "x.ckpt")


def test_weights_alone_cannot_be_resumed(tmp_path: Path) -> None:
    write_payload(tiny_payload(), tmp_path / "x.ckpt")
    with pytest.raises(InputError, match=r"x\.ckpt has only weights; resume from"):
        find_resumable(tmp_path / "x.ckpt")


def fresh_optimizer() -> torch.optim.Optimizer:
    model = tiny_transformer(encoder_layers=1, decoder_layers=1)
    return build_optimizer(OptimizerConfig(lr=1e-3), model.parameters())


def saved_optimizer() -> dict[str, Any]:
    """The state of an optimizer after an update."""
    model = tiny_transformer(encoder_layers=1, decoder_layers=1)
    optimizer = build_optimizer(OptimizerConfig(lr=1e-3), model.parameters())
    model(torch.tensor([[5, 3]]), torch.tensor([[2, 9]])).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def test_moments_come_from_the_file_and_settings_from_the_run() -> None:
    saved = saved_optimizer()
    saved["param_groups"][0] |= {"maximize": True, "lr": 100.0}
    state = optimizer_state([saved], fresh_optimizer())
    assert state["state"].keys() == saved["state"].keys()
    moment = state["state"][0]["exp_avg"]
    assert torch.equal(moment, saved["state"][0]["exp_avg"])
    assert moment is not saved["state"][0]["exp_avg"]
    assert not state["param_groups"][0]["maximize"]
    assert state["param_groups"][0]["lr"] == 1e-3


@pytest.mark.parametrize("damage", ["shape", "name", "number", "params", "none"])
def test_moments_of_other_weights_are_refused(damage: str) -> None:
    saved = saved_optimizer()
    first = saved["state"][0]
    states: Any = [saved]
    match damage:
        case "shape":
            first["exp_avg"] = first["exp_avg"][:1]
        case "name":
            first["other"] = first.pop("exp_avg")
        case "number":
            saved["state"][999] = first
        case "params":
            saved["param_groups"][0]["params"] = [0]
        case "none":
            states = None
    with pytest.raises(InputError, match="do not fit the weights"):
        optimizer_state(states, fresh_optimizer())


def test_the_schedule_is_as_after_its_updates() -> None:
    config = ScheduleConfig("cosine", warmup=3, total=20, floor=0.0)
    stepped = build_schedule(config, fresh_optimizer(), 16)
    for _ in range(7):
        stepped.optimizer.step()
        stepped.step()
    made = schedule_state(build_schedule(config, fresh_optimizer(), 16), 7, 1.0)
    assert made == stepped.state_dict()
