"""Two GPUs, by NCCL, train one model; test_ranks.py has such cases on a CPU, by gloo."""

from pathlib import Path

import pytest
import torch

from tests.helpers.runs.ranks import OF_RANKS, curve, distance, ended, started
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


def train_in(folder: Path, *arguments: str) -> None:
    """A run in a process of its own, which may take two minutes."""
    code, stderr = ended(started(["-m", "transformer", "train", *arguments], folder), 120)
    assert code == 0, stderr


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_two_devices_learn_the_weights_of_one(optimizer: str, tmp_path: Path) -> None:
    chosen = [f"optimizer={optimizer}"]
    if optimizer == "muon":
        # Rounded products would differ by what the last bits of a sum over ranks decide.
        chosen.append("optimizer.bfloat16=false")
    settings = [*corpus_overrides(tmp_path), *chosen, *SETTINGS]
    train_in(tmp_path, *settings, "trainer.accumulate_grad_batches=2", "hydra.run.dir=one")
    expected = load_checkpoint(tmp_path / "one" / "checkpoints" / "last.ckpt").model.state_dict()
    losses = {point: loss for point, loss in curve(tmp_path / "one").items() if point[0] in LOSSES}
    for strategy in ("ddp", "fsdp"):
        two = [f"trainer.strategy={strategy}", "trainer.devices=2", f"hydra.run.dir={strategy}"]
        train_in(tmp_path, "trainer=ddp", *settings, *two)
        run = tmp_path / strategy
        assert distance({point: curve(run)[point] for point in losses}, losses) < 1e-4
        weights = load_checkpoint(run / "checkpoints" / "last.ckpt").model.state_dict()
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-5)
