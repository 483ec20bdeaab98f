"""Checkpoints in training: which are written when, what is set aside, what a run resumes with."""

import math
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pytorch_lightning import LightningModule

from tests.helpers.model.models import tiny_payload
from tests.helpers.training.fakes import fake_trainer
from tests.helpers.training.sharded import payload, write
from transformer.checkpoint.archive import SHARDS
from transformer.checkpoint.checkpoint import write_payload
from transformer.checkpoint.run_directory import is_finished, mark_finished
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
    set_aside_unused,
)
from transformer.training.divergence import DivergenceDetector
from transformer.training.model_selection import ModelSelection
from transformer.training.optimization import build_optimizer, build_schedule

NAN = math.nan
NOON = datetime(2026, 5, 1, 12).timestamp()


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


def test_the_last_is_written_at_start_interval_validation_and_end(tmp_path: Path) -> None:
    last = LastCheckpoint(tmp_path, 3)
    trainer, written = saving_trainer()
    last.on_train_start(trainer, module())
    run(last, trainer, 8)
    last.on_validation_start(trainer, module())
    assert last.state_dict() == {"validates": True}
    last.on_validation_epoch_end(trainer, module())
    assert last.state_dict() == {"validates": False}
    for _ in range(2):  # the second time there is nothing new to write
        last.on_train_end(trainer, module())
        assert written == ["last 0", "last 3", "last 6", "last 8", "last 8"]
    # A resumed run does not write at its start, unless it has returned after a divergence.
    for returned, expected in ((0, []), (1, ["last 8"])):
        last = LastCheckpoint(tmp_path, None)
        trainer, written = saving_trainer(8)
        last.on_train_start(trainer, module(returned=returned))
        run(last, trainer, 20)
        assert written == expected


def test_a_start_clears_the_folder_and_the_last_is_not_written_while_updates_are_bad(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    results = tmp_path / "test_2017.json"
    measured = ("test.hyp", "own.json", "own.hyp", "stress.json", "validation.failures.json")
    kept = ("run.json", "outdated-test-2026-05-01_11-00-00.hyp")
    for name in (*measured, *kept):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (NOON, NOON))
    results.touch()
    for name in ("last.ckpt.0f.part", "step-00000008.ckpt.a.part", "tuned.ckpt", "last.ckpt"):
        (folder / name).touch()
    for file in (folder / "last.ckpt", folder / "tuned.ckpt", results):
        os.utime(file, (NOON, NOON))
    trainer, written = saving_trainer()
    trainer.should_stop = True
    mark_finished(tmp_path)
    LastCheckpoint(folder, None).on_train_start(trainer, module())
    # A run that stops at once trains nothing: the weights that it has tuned stay good.
    assert {path.name for path in folder.iterdir()} == {"tuned.ckpt", "last.ckpt"}
    assert is_finished(tmp_path)
    trainer.should_stop = False
    trainer.ckpt_path = folder / "best.ckpt"
    disk = trainer.strategy.checkpoint_io
    disk.is_full = True
    with pytest.raises(InputError, match="full"):
        LastCheckpoint(folder, None).on_train_start(trainer, module())
    assert (folder / "last.ckpt").exists() and not is_finished(tmp_path)
    assert not (folder / "tuned.ckpt").exists() and not results.exists()
    assert (folder / "outdated-tuned-2026-05-01_12-00-00.ckpt").exists()
    assert (tmp_path / "outdated-test_2017-2026-05-01_12-00-00.json").exists()
    for name in map(Path, measured):
        aside = f"outdated-{name.stem}-2026-05-01_12-00-00{name.suffix}"
        assert (tmp_path / aside).exists() and not (tmp_path / name).exists()
    assert all((tmp_path / name).exists() for name in kept)
    for resume in (None, folder / "." / "last.ckpt"):
        assert set_aside_unused(folder, resume) is None and (folder / "last.ckpt").exists()
    disk.is_full = False
    last = LastCheckpoint(folder, 3)
    last.on_train_start(trainer, module())
    assert (folder / "unused-last-2026-05-01_12-00-00.ckpt").exists()
    run(last, trainer, 6, bad=(3, 4))
    last.on_validation_start(trainer, module(in_a_row=1))
    last.on_validation_epoch_end(trainer, module(in_a_row=1))
    assert written == ["last 0", "last 5"]
    last.on_train_end(trainer, module(in_a_row=1))
    assert written[2:] == ["last 6"]


def test_the_final_checkpoint_must_be_written(tmp_path: Path) -> None:
    last = LastCheckpoint(tmp_path, 2)
    trainer, _ = saving_trainer()
    last.on_train_start(trainer, module())
    trainer.strategy.checkpoint_io.is_full = True
    run(last, trainer, 5)
    with pytest.raises(InputError, match="full"):
        last.on_train_end(trainer, module())
    run(last, trainer, 6)
    trainer.is_global_zero = False
    with pytest.raises(AnotherRankFailed, match="full"):
        last.on_train_end(trainer, module())


def test_a_validation_that_is_due_runs_although_training_is_over(tmp_path: Path) -> None:
    last = LastCheckpoint(tmp_path, 2)
    trainer, _ = saving_trainer()
    trainer.max_steps = 9
    trainer.should_stop = True
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
    assert (trainer.should_stop, loop.max_steps) == (True, 9)


def test_the_best_is_better_than_all_before(tmp_path: Path) -> None:
    mode: Any
    for mode, scores_and_losses, written, waited in (
        ("max", [(1, 1), (3, 1), (3, 1), (2, 1), (4, 1)], [1, 2, 5], [0, 0, 1, 2, 0]),
        ("min", [(4, 1), (2, 1), (2, 1), (3, 1), (1, 1)], [1, 2, 5], [0, 0, 1, 2, 0]),
        # Of equal scores that of the lower loss is better; in a tie, a loss of NaN is the worse.
        ("max", [(0, NAN), (0, 2), (0, 2), (0, NAN), (0, 1)], [1, 2, 5], [0, 0, 1, 2, 0]),
        # A score of NaN is never better, and the first number after it is.
        ("min", [(NAN, 1), (NAN, 1), (3, 1), (NAN, 1), (2, 1)], [3, 5], [1, 2, 0, 1, 0]),
    ):
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


def test_the_best_score_moves_with_the_directory_and_counts_with_its_file(tmp_path: Path) -> None:
    selection = ModelSelection("val/x", "max")
    former = BestCheckpoint(tmp_path, selection)
    trainer, _ = saving_trainer()
    validate([former], trainer, 7)
    there = tmp_path / "there"
    there.mkdir()
    (tmp_path / "best.ckpt").rename(there / "best.ckpt")
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
    # A file that was not written does not count. All ranks follow rank 0.
    disk = trainer.strategy.checkpoint_io
    disk.is_full = True
    validate([moved], trainer, 7)
    assert moved.best == (6, 1)
    trainer.strategy.broadcast = lambda value: ""
    validate([moved], trainer, 8)
    assert moved.best == (8, 1)
    disk.is_full = False
    trainer.strategy.broadcast = lambda value: "full"
    validate([moved], trainer, 9)
    assert moved.best == (8, 1)


@pytest.mark.parametrize(("keep", "expected"), [(2, [3, 4]), (-1, [1, 2, 3, 4]), (0, [])])
def test_the_newest_few_are_kept(tmp_path: Path, keep: int, expected: list[int]) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    recent = RecentCheckpoints(folder, keep)
    trainer, _ = saving_trainer(-1)
    for _ in range(5):  # the first one is before the first update
        validate([recent], trainer, 1)
    files = sorted(path.name for path in folder.iterdir())
    assert files == [f"step-{step:08d}.ckpt" for step in expected]
    # After a return to an earlier update, later ones go.
    trainer, _ = saving_trainer(3)
    recent.on_train_start(trainer, module())
    assert len(list(folder.iterdir())) == len([step for step in expected if step <= 3])


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
    "callbacks": {"BestCheckpoint": {"best": [1.5, 2.0]}, "LastCheckpoint": {"validates": False}},
    "recovery": {"losses": [1.0], "in_a_row": 0, "skipped": 0, "returned": 0, "lr": 1e-3},
    "measured": {
        "loss": 1.0,
        "alignment": [0.0, 0.0],
        "consistency": None,
        "learned": 1,
        "counted": [1, 1],
    },
}


def test_a_state_that_training_does_not_write_is_refused(tmp_path: Path) -> None:
    check_saved_state(STATE, Path("x.ckpt"))
    for changes, message in (
        ({"global_step": -1}, "global_step=-1 must be at least 0"),
        ({"callbacks": {"LastCheckpoint": {"validates": 1}}}, "validates=1 must be true or false"),
        ({"recovery": STATE["recovery"] | {"losses": ["x"]}}, r"recovery\.losses='x' must be a"),
        ({"measured": []}, r"measured=\[\] must be a mapping"),
        ({"records": {"wandb": 3}}, r"records\.wandb=3"),
        ({"loops": []}, "loops=.* must be a mapping"),
        ({"loops": loops(ranks=0)}, r"loops\.ranks=0 must be at least 1"),
    ):
        with pytest.raises(InputError, match=rf"^x\.ckpt: .*{message}"):
            check_saved_state(STATE | changes, Path("x.ckpt"))
    file = tmp_path / "x.ckpt"
    write_payload(tiny_payload(), file)
    with pytest.raises(InputError, match="has only weights"):
        find_resumable(file)
    for key in ("global_step", "loops", "callbacks", "recovery", "measured"):
        state = tiny_payload(**STATE)
        del state[key]
        write_payload(state, file)
        with pytest.raises(InputError, match=rf"x\.ckpt: {key} is missing"):
            find_resumable(file)


def fresh_optimizer() -> torch.optim.Optimizer:
    weights = [torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(3))]
    return build_optimizer(OptimizerConfig(lr=1e-3), torch.nn.ParameterList(weights))


def saved_optimizer() -> dict[str, Any]:
    """The state of an optimizer after an update."""
    optimizer = fresh_optimizer()
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.grad = torch.ones_like(weight)
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


def test_moments_of_other_weights_are_refused() -> None:
    other_shape = saved_optimizer()
    other_shape["state"][0]["exp_avg"] = torch.zeros(1)
    other_number = saved_optimizer()
    other_number["state"][999] = other_number["state"][0]
    other_params = saved_optimizer()
    other_params["param_groups"][0]["params"] = [1]
    states: tuple[Any, ...] = ([other_shape], [other_number], [other_params], None)
    for saved in states:
        with pytest.raises(InputError, match=r"optimizer\.name"):
            optimizer_state(saved, fresh_optimizer())


def test_the_schedule_is_as_after_its_updates() -> None:
    config = ScheduleConfig("cosine", warmup=3, total=20, floor=0.0)
    stepped = build_schedule(config, fresh_optimizer(), 16)
    for _ in range(7):
        stepped.optimizer.step()
        stepped.step()
    made = schedule_state(build_schedule(config, fresh_optimizer(), 16), 7, 1.0)
    assert made == stepped.state_dict()
