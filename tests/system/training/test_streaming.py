"""Training on a stream learns, and a restart in the middle of a buffer changes nothing."""

from pathlib import Path

import pytest
import torch

from tests.helpers.data.text import write_parallel
from tests.helpers.runs.runs import SMALL, composed, verb
from transformer.checkpoint.checkpoint import load_checkpoint
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.runs.train import train

pytestmark = pytest.mark.thorough

QUICK = [
    *SMALL,
    "model.d_model=16",
    "model.num_heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.dropout=0.1",
    "schedule=constant",
    "decoding=greedy",
    "callbacks.samples=0",
    "data.buffer=150",
    "trainer.val_check_interval=7",
]


@pytest.fixture
def stream(tmp_path: Path) -> list[str]:
    for number in range(3):
        write_parallel(tmp_path, f"part{number}", 200, number, list)
    validation = write_parallel(tmp_path, "validation", 10, 9, list)
    globs = ",".join(f"{tmp_path}/part*.{side}" for side in ("src", "tgt"))
    return [
        *("data=files", "data.source=src", "data.target=tgt", "data.streaming=true"),
        *(f"data.train=[{globs}]", f"data.validation=[{','.join(validation)}]"),
    ]


def assert_same_weights(folder: Path) -> None:
    """The last checkpoints of the runs ``whole`` and ``parts`` have the same weights."""
    files = (find_checkpoint(folder / run, "last") for run in ("whole", "parts"))
    whole, parts = (load_checkpoint(file).model.state_dict() for file in files)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_restart_in_the_middle_changes_nothing(
    tmp_path: Path, stream: list[str], workers: int
) -> None:
    call = [*QUICK, *stream, f"data.workers={workers}"]
    losses: list[float] = []
    for folder, steps, resumed in (
        ("whole", 21, []),
        ("parts", 7, []),
        ("parts", 21, [f"checkpoint={tmp_path}/parts"]),
    ):
        config = composed([*call, f"trainer.max_steps={steps}", *resumed], tmp_path / "cache")
        losses.append(train(config, tmp_path / folder)["val/loss"])
    assert losses[0] == losses[2] < losses[1]
    assert_same_weights(tmp_path)


def test_two_ranks_resume_where_each_was(tmp_path: Path, stream: list[str]) -> None:
    """Exactly with as many ranks; one rank goes on with what both have left."""
    ranks = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "precision=32-true")
    call = ["train", *QUICK, *stream, *ranks, f"data.cache={tmp_path}/cache", "data.workers=0"]
    one = ("trainer.max_steps=9", "trainer.devices=1", "trainer.strategy=auto")
    for arguments in (
        (*call, "trainer.max_steps=8", "hydra.run.dir=whole"),
        (*call, "trainer.max_steps=5", "hydra.run.dir=parts"),
        ("train", "checkpoint=parts", "trainer.max_steps=8"),
    ):
        code, _, stderr = verb(*arguments, home=tmp_path)
        assert code == 0, stderr
    assert_same_weights(tmp_path)
    code, _, stderr = verb("train", "checkpoint=parts", *one, home=tmp_path)
    assert code == 0, stderr
    assert "resuming with 1 x 1 batches an update (ranks x accumulation), 2 x 1 before" in stderr
