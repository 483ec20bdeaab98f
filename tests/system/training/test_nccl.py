"""Two GPUs, by NCCL, train one model; test_ranks.py has such cases on a CPU, by gloo."""

import os
import signal
from pathlib import Path

import pytest
import torch

from tests.helpers.runs.faults import SignalAt
from tests.helpers.runs.ranks import OF_RANKS, curve, distance, ended, planted, started
from tests.helpers.runs.runs import corpus_overrides
from transformer.checkpoint.checkpoint import load_checkpoint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]
SETTINGS = [
    *OF_RANKS,
    "trainer.compile=none",
    "trainer.max_steps=4",
    "trainer.val_check_interval=2",
    "trainer.log_every_n_steps=1",
    # What rounding would make large: a ReLU that it flips, and Adam's step where the gradient is
    # zero but for rounding.
    "model.activation=gelu",
    "optimizer.eps=1e-5",
    "trainer.accelerator=gpu",
    "data.workers=0",
    "loss.chunk=512",
]
LOSSES = ("train/loss", "val/loss")


def rank_1_is_killed() -> None:
    if os.environ["LOCAL_RANK"] == "1":
        SignalAt("on_train_batch_start", 4, signal.SIGKILL)()


def trained(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Exit code and stderr of a run, which may take two minutes."""
    return ended(started(["-m", "transformer", "train", *arguments], folder, environment), 120)


def assert_like_one(home: Path, name: str) -> None:
    """A run has the losses and the weights of that of one device."""
    one, two = (
        {point: value for point, value in curve(home / run).items() if point[0] in LOSSES}
        for run in ("one", name)
    )
    assert distance(two, one) < 1e-4
    files = (home / run / "checkpoints" / "last.ckpt" for run in (name, "one"))
    weights, expected = (load_checkpoint(file).model.state_dict() for file in files)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run of one device with two micro-batches."""
    folder = tmp_path_factory.mktemp("nccl")
    (folder / "settings").write_text("\n".join([*corpus_overrides(folder), *SETTINGS]))
    arguments = [*settings(folder), "trainer.accumulate_grad_batches=2", "hydra.run.dir=one"]
    code, stderr = trained(folder, *arguments)
    assert code == 0, stderr
    return folder


def settings(home: Path) -> list[str]:
    return (home / "settings").read_text().splitlines()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_devices_learn_the_weights_of_one(home: Path, strategy: str) -> None:
    two = [f"trainer.strategy={strategy}", "trainer.devices=2", f"hydra.run.dir={strategy}"]
    code, stderr = trained(home, "trainer=ddp", *settings(home), *two)
    assert code == 0, stderr
    assert_like_one(home, strategy)


def test_a_killed_rank_ends_the_run_and_it_goes_on(home: Path) -> None:
    fault = planted(rank_1_is_killed, home / "planted")
    two = ["trainer.devices=2", "hydra.run.dir=killed"]
    code, stderr = trained(home, "trainer=ddp", *settings(home), *two, **fault)
    assert code == 1
    assert "rank 1 was killed by SIGKILL" in stderr
    code, stderr = trained(home, "checkpoint=killed")
    assert code == 0, stderr
    assert_like_one(home, "killed")
