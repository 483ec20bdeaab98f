"""Muon in whole runs: processes train as one does, a resumed run as an uninterrupted one."""

from pathlib import Path

import pytest
import torch

from tests.helpers.runs.ranks import OF_RANKS, curve, distance, forked_ranks
from tests.helpers.runs.runs import corpus_overrides, verb

pytestmark = pytest.mark.thorough

SETTINGS = (
    *OF_RANKS,
    "optimizer=muon",
    # Rounded products would differ by as much as the last bits of a sum over ranks decide.
    "optimizer.bfloat16=false",
    "optimizer.weight_decay=0.1",
    "trainer.val_check_interval=2",
    "trainer.log_every_n_steps=1",
    "trainer.gradient_clip_val=1.0",
)
ONE = ("trainer.max_steps=4", "trainer.accumulate_grad_batches=2")
TWO = ("trainer=ddp", "trainer.accelerator=cpu", "data.workers=0", "trainer.devices=2")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and the run of one process, whose updates have two micro-batches."""
    folder = tmp_path_factory.mktemp("muon")
    (folder / "corpus").write_text("\n".join(corpus_overrides(folder)))
    trained(folder, *ONE, run="one")
    return folder


def trained(home: Path, *more: str, run: str) -> None:
    corpus = (home / "corpus").read_text().splitlines()
    call = ["train", *corpus, *SETTINGS, *more, f"hydra.run.dir={run}"]
    code, _, stderr = verb(*call, home=home)
    assert code == 0, stderr


def test_two_processes_train_as_one_does(home: Path) -> None:
    trained(home, *TWO, "trainer.max_steps=4", run="two")
    assert distance(curve(home / "two"), curve(home / "one")) < 1e-5


def test_sharded_weights_train_alike_and_go_on_in_one_process(home: Path) -> None:
    corpus = (home / "corpus").read_text().splitlines()
    call = ["train", *corpus, *SETTINGS, *TWO, "trainer=fsdp", "trainer.max_steps=2"]
    for code, _, stderr in forked_ranks([*call, "hydra.run.dir=sharded"], home):
        assert code == 0, stderr
    changes = ["trainer.strategy=auto", "trainer.devices=1", *ONE]
    code, _, stderr = verb("train", "checkpoint=sharded", *changes, home=home)
    assert code == 0, stderr
    assert distance(curve(home / "sharded"), curve(home / "one")) < 1e-5


def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(home: Path) -> None:
    trained(home, *ONE, "schedule.total=4", "trainer.max_steps=2", run="parts")
    code, _, stderr = verb("train", "checkpoint=parts", "trainer.max_steps=4", home=home)
    assert code == 0, stderr
    trained(home, *ONE, "schedule.total=4", run="whole")
    whole, parts = (
        torch.load(home / run / "checkpoints" / "last.ckpt", weights_only=True)
        for run in ("whole", "parts")
    )
    assert whole["global_step"] == parts["global_step"] == 4
    for key in ("state_dict", "optimizer_states"):
        torch.testing.assert_close(parts[key], whole[key], rtol=0, atol=0)
