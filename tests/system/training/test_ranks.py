"""One process, several, and several machines train the same model on the same batches."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.helpers.runs.faults import SignalAt
from tests.helpers.runs.processes import start_verb
from tests.helpers.runs.ranks import OF_RANKS, curve, distance, forked_ranks, planted
from tests.helpers.runs.runs import composed, corpus_overrides, verb
from transformer.checkpoint.run_directory import is_locked
from transformer.checkpoint.sharded import SUFFIX, part_folder_of
from transformer.common.errors import InputError
from transformer.runs.train import train
from transformer.settings.training import TrainerConfig
from transformer.training.callbacks.best_score import Objective

pytestmark = pytest.mark.thorough

DDP = ("trainer=ddp", "trainer.accelerator=cpu", "data.workers=0")
LENGTH = (
    "trainer.max_steps=4",
    "trainer.val_check_interval=2",
    "trainer.log_every_n_steps=1",
    "trainer.gradient_clip_val=1.0",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and the run of one process, whose updates have two micro-batches."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "corpus").write_text("\n".join(corpus_overrides(folder)))
    call = ["train", *settings(folder), *LENGTH, "trainer.accumulate_grad_batches=2"]
    code, _, stderr = verb(*call, "hydra.run.dir=one", home=folder)
    assert code == 0, stderr
    return folder


def settings(home: Path) -> list[str]:
    return [*(home / "corpus").read_text().splitlines(), *OF_RANKS]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_two_processes_train_as_one_does(home: Path) -> None:
    call = ["train", *settings(home), *DDP, *LENGTH, "trainer.devices=2", "hydra.run.dir=two"]
    code, _, stderr = verb(*call, home=home)
    assert code == 0, stderr
    one, two = curve(home / "one"), curve(home / "two")
    assert distance(one, two) < 1e-4
    # Validation has seen the same weights first, and the same pairs in other batches.
    assert abs(one["val/loss", 1] - two["val/loss", 1]) < 1e-6
    assert ("val/bleu", 3) in two
    assert files(home / "two") == files(home / "one")
    assert stderr.count("update 4/4") == 1
    assert (home / "two" / "train.log").read_text().count("run directory") == 1


def test_a_program_trains_on_two_devices_as_the_command_does(home: Path) -> None:
    trainer = TrainerConfig(strategy="ddp", devices=2, max_steps=4, val_check_interval=2)
    config = replace(composed(settings(home), home / "cache"), trainer=trainer)
    objective = Objective("val/bleu")
    train(config, home / "trial", objective=objective)
    metrics = train(config, home / "python")
    assert files(home / "python") == files(home / "one")
    rows = curve(home / "python")
    assert metrics["val/bleu"] == rows["val/bleu", 3] and "test/bleu" in metrics
    scores = [score for (name, _), score in curve(home / "trial").items() if name == "val/bleu"]
    assert objective.best == max(scores)
    with pytest.raises(InputError, match="holds a run"):
        train(config, home / "python")


def test_two_machines_make_one_run_directory(home: Path) -> None:
    for code, _, stderr in forked_ranks(
        ["train", *settings(home), *DDP, *LENGTH], home, machines=2
    ):
        assert code == 0, stderr
    (folder,) = (home / "runs" / "files").iterdir()
    assert files(folder) == files(home / "one")
    assert distance(curve(folder), curve(home / "one")) < 1e-4
    assert OmegaConf.load(folder / "config.yaml").trainer.strategy == "ddp"


def test_sharded_weights_train_alike_and_become_one_file(home: Path) -> None:
    more = ("trainer.devices=2", "gradient_checkpointing=true", "hydra.run.dir=sharded")
    call = ["train", *settings(home), *DDP, *LENGTH, "trainer=fsdp", *more]
    for code, _, stderr in forked_ranks(call, home):
        assert code == 0, stderr
    assert distance(curve(home / "sharded"), curve(home / "one")) < 1e-4
    assert files(home / "sharded") == files(home / "one")
    one, sharded = (
        torch.load(home / run / "checkpoints" / "last.ckpt", weights_only=True)
        for run in ("one", "sharded")
    )
    assert one.keys() == sharded.keys()
    torch.testing.assert_close(sharded["state_dict"], one["state_dict"], rtol=0, atol=1e-4)


def rank_0_is_stopped() -> None:
    if os.environ["LOCAL_RANK"] == "0":
        SignalAt("on_train_batch_start", 2, signal.SIGTERM)()


def test_a_stopped_run_with_sharded_weights_goes_on_in_one_process(
    home: Path, tmp_path: Path
) -> None:
    call = ["train", *settings(home), *DDP, *LENGTH, "trainer=fsdp", "trainer.devices=2"]
    more = ("trainer.val_check_interval=4", "hydra.run.dir=stopped")
    code, _, stderr = verb(
        *call, *more, home=home, **planted(rank_0_is_stopped, tmp_path / "fault")
    )
    assert code == 143, stderr
    last = home / "stopped" / "checkpoints" / "last.ckpt"
    assert part_folder_of(last) is not None
    alone = ("trainer.strategy=auto", "trainer.devices=1", "trainer.accumulate_grad_batches=2")
    resume = ["train", "checkpoint=stopped", "trust=true", "trainer.val_check_interval=2", *alone]
    code, _, stderr = verb(*resume, home=home)
    assert code == 0, stderr
    one, other = curve(home / "one"), curve(home / "stopped")
    assert distance({point: one[point] for point in other}, other) < 1e-4
    assert ("train/loss", 3) in other and ("val/loss", 3) in other
    assert not list(last.parent.glob(f"*{SUFFIX}"))


def rank_1_fails() -> None:
    from transformer.common.errors import InputError
    from transformer.training.update import UpdateModule

    step = UpdateModule.training_step

    def failing(self: UpdateModule, *update: Any) -> Any:
        if os.environ["LOCAL_RANK"] == "1" and self.global_step == 2:
            raise InputError("rank 1 has bad luck; give it better")
        return step(self, *update)

    UpdateModule.training_step = failing  # type: ignore[method-assign]


def test_a_rank_that_fails_says_why_and_none_hangs(home: Path, tmp_path: Path) -> None:
    call = ["train", *settings(home), *DDP, *LENGTH, "trainer.devices=2", "hydra.run.dir=failing"]
    code, _, stderr = verb(*call, home=home, **planted(rank_1_fails, tmp_path / "fault"))
    assert code == 2
    assert "error: rank 1 has bad luck; give it better\n" in stderr
    assert stderr.count("error: ") == 1
    # Nothing of torch's launcher.
    assert "Traceback" not in stderr and "elastic" not in stderr
    last = torch.load(home / "failing" / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 2


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("nothing happens for two minutes")


def test_ranks_end_with_the_command_and_the_run_goes_on(home: Path) -> None:
    long = ("trainer.max_steps=100000", "trainer.val_check_interval=100000")
    devices = ("trainer.devices=2", "trainer.log_every_n_steps=1", "hydra.run.dir=ended")
    log = home / "ended" / "train.log"
    killed = start_verb(["train", *settings(home), *DDP, *devices, *long], home)
    try:
        wait_for(lambda: log.exists() and "update 1/" in log.read_text())
    finally:
        killed.process.kill()
    wait_for(lambda: not is_locked(home / "ended"))
    assert killed.ended()[0] == -signal.SIGKILL
    resumed = start_verb(["train", "checkpoint=ended", "trust=true"], home)
    try:
        wait_for(lambda: "resuming from" in log.read_text())
        resumed.process.terminate()
    finally:
        code, _, stderr = resumed.ended(60)
    assert code == 143, stderr
    assert stderr.count("stopped by SIGTERM; resume with transformer train checkpoint=") == 1
    assert "Traceback" not in stderr
