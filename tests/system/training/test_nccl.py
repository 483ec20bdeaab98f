"""Two GPUs, by NCCL, train one model; the same cases run on a CPU, by gloo, at night."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tests.helpers.runs.ranks import OF_RANKS, Curve, curve, distance, ended, started
from tests.helpers.runs.runs import corpus_overrides

ACCELERATORS = [
    pytest.param("cpu", marks=pytest.mark.slow),
    pytest.param(
        "gpu",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
        ],
    ),
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
]
PLANTED = """
import os
if os.environ.get("RANK") == "1":
    from tests.system.training.test_nccl import {fault}
    {fault}()
"""


class Home(NamedTuple):
    """A folder with a corpus and ``one``, the run of one device with two micro-batches."""

    folder: Path
    settings: list[str]

    def train(self, *more: str, fault: str | None = None) -> tuple[int, str]:
        """Exit code and stderr of a run, which may take two minutes, with a fault in rank 1."""
        environment = {}
        if fault is not None:
            planted = self.folder / fault
            planted.mkdir()
            (planted / "sitecustomize.py").write_text(PLANTED.format(fault=fault))
            environment = {"PYTHONPATH": str(planted)}
        call = ["-m", "transformer", "train", *more]
        return ended(started(call, self.folder, environment), timeout=120)

    def train_on_two(self, name: str, *more: str, fault: str | None = None) -> tuple[int, str]:
        """The same on two devices, in a new folder."""
        two = ("trainer.devices=2", f"hydra.run.dir={name}")
        return self.train("trainer=ddp", *self.settings, *two, *more, fault=fault)

    def checkpoint(self, name: str) -> dict[str, Any]:
        file = self.folder / name / "checkpoints" / "last.ckpt"
        checkpoint: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        return checkpoint

    def check_like_one(self, name: str) -> None:
        """Check that a run has the files, the logs and the weights of that of one device."""
        one, other = self.folder / "one", self.folder / name
        assert distance(_losses(other), _losses(one)) < 1e-4
        assert [_files(folder) for folder in (other, one)] == [_files(one)] * 2
        weights = self.checkpoint(name)["state_dict"]
        for key, tensor in self.checkpoint("one")["state_dict"].items():
            torch.testing.assert_close(weights[key], tensor, rtol=0, atol=1e-5)


def _losses(folder: Path) -> Curve:
    """What a run has logged, but for the scores of translations, in which rounding may show."""
    return {
        point: value
        for point, value in curve(folder).items()
        if point[0] in ("train/loss", "val/loss")
    }


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module", params=ACCELERATORS)
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp(request.param)
    device = [f"trainer.accelerator={request.param}", "data.workers=0", "loss.chunk=512"]
    made = Home(folder, [*corpus_overrides(folder), *SETTINGS, *device])
    code, stderr = made.train(
        *made.settings, "trainer.accumulate_grad_batches=2", "hydra.run.dir=one"
    )
    assert code == 0, stderr
    return made


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_devices_learn_the_weights_of_one(home: Home, strategy: str) -> None:
    code, stderr = home.train_on_two(strategy, f"trainer.strategy={strategy}")
    assert code == 0, stderr
    home.check_like_one(strategy)


def test_a_killed_rank_ends_the_run_and_it_goes_on(home: Home) -> None:
    code, stderr = home.train_on_two("killed", fault="kill_rank")
    assert code == 1
    assert "rank 1 was killed by SIGKILL; resume with checkpoint=auto" in stderr
    assert home.checkpoint("killed")["global_step"] == 2
    code, stderr = home.train("checkpoint=killed")
    assert code == 0, stderr
    home.check_like_one("killed")


def test_a_rank_without_memory_ends_the_run_in_one_line(home: Home) -> None:
    code, stderr = home.train_on_two("full", fault="run_out_of_memory")
    assert code == 2
    assert stderr.count("error: ") == 1
    assert "error: the device runs out of memory with " in stderr
    assert "one of several ranks cannot halve its batch; set data.batch_tokens" in stderr
    assert "Traceback" not in stderr
    assert home.checkpoint("full")["global_step"] == 2


def kill_rank() -> None:
    """Let this process be killed in its fourth update."""
    _in_update_4(lambda: os.kill(os.getpid(), signal.SIGKILL))


def run_out_of_memory() -> None:
    """Let this process find no memory for its fourth update."""

    def fail() -> None:
        raise torch.OutOfMemoryError

    _in_update_4(fail)


def _in_update_4(fault: Callable[[], None]) -> None:
    from transformer.training.update import UpdateModule

    backward = UpdateModule._backward

    def failing(self: UpdateModule, *batch: Any) -> Any:
        if self.trainer.global_step == 3:
            fault()
        return backward(self, *batch)

    UpdateModule._backward = failing  # type: ignore[method-assign]
