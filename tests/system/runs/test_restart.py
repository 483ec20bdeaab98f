"""torchrun starts its processes anew when one of them is killed, and the run goes on."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.helpers.runs.ranks import curve, ended, started
from tests.helpers.runs.runs import SMALL, corpus_overrides

TRAIN = ("-m", "transformer", "train")

RESTARTING = (
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
    "--max-restarts=1",
)

KILLED_ONCE = """
import os, pathlib, signal
if os.environ.get("RANK") == "1":
    from transformer.training.update import UpdateModule
    step = UpdateModule.training_step
    def killed(self, update, index):
        seen = pathlib.Path({seen!r})
        if self.global_step == 5 and not seen.exists():
            seen.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, update, index)
    UpdateModule.training_step = killed
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_killed_worker_goes_on_from_the_last_checkpoint(tmp_path: Path, strategy: str) -> None:
    settings = [*corpus_overrides(tmp_path), *SMALL, "model.dropout=0.2", "data.batch_tokens=256"]
    settings += ["trainer.log_every_n_steps=1", "callbacks.samples=0", "decoding=greedy"]
    settings += ["trainer.max_steps=2", "trainer.val_check_interval=2", "hydra.run.dir=killed"]
    code, stderr = ended(started([*TRAIN, *settings, "trainer.max_steps=2"], tmp_path))
    assert code == 0, stderr
    shutil.copytree(tmp_path / "killed", tmp_path / "whole")
    (tmp_path / "sitecustomize.py").write_text(KILLED_ONCE.format(seen=str(tmp_path / "seen")))
    for folder in ("killed", "whole"):
        more = [f"checkpoint={folder}", "trainer.max_steps=8"]
        more += ["trainer.devices=2", f"trainer.strategy={strategy}"]
        call = [*RESTARTING, *TRAIN, *more]
        environment = {"PYTHONPATH": str(tmp_path)} if folder == "killed" else {}
        code, stderr = ended(started(call, tmp_path, environment), timeout=500)
        assert code == 0, stderr
    assert (tmp_path / "seen").exists()
    killed, whole = (
        torch.load(tmp_path / folder / "checkpoints" / "last.ckpt", weights_only=True)
        for folder in ("killed", "whole")
    )
    assert killed["global_step"] == whole["global_step"] == 8
    for name, tensor in whole["state_dict"].items():
        assert torch.equal(killed["state_dict"][name], tensor), name
    # Update 5 was done before the kill, and is done again after it, alike.
    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")
