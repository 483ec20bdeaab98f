"""Weights & Biases, offline, holds one record of a run that was killed.

pip install -e '.[wandb]'; then pytest tests/system/training/test_loggers.py
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs.ranks import ended, started
from tests.helpers.runs.runs import SMALL, corpus_overrides

KILLED = """
import os, signal, time
from transformer.training.update import UpdateModule
step = UpdateModule.training_step
def killed(self, update, index):
    if self.global_step == 6:
        time.sleep(3)
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, update, index)
UpdateModule.training_step = killed
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 8 updates that is killed seconds after 6, when its checkpoint has 4, and goes on."""
    folder = tmp_path_factory.mktemp("records")
    pytest.importorskip("wandb")
    settings = [*corpus_overrides(folder), *SMALL, "logger=wandb", "logger.wandb.offline=true"]
    settings += ["trainer.log_every_n_steps=1", "callbacks.samples=0", "decoding=greedy"]
    settings += ["trainer.max_steps=8", "trainer.val_check_interval=8", "hydra.run.dir=run"]
    settings += ["callbacks.save_interval=4"]
    train = ["-m", "transformer", "train"]
    (folder / "killed").mkdir()
    (folder / "killed" / "sitecustomize.py").write_text(KILLED)
    code, stderr = ended(started([*train, *settings], folder, {"PYTHONPATH": "killed"}))
    assert code == -9, stderr
    code, stderr = ended(started([*train, "checkpoint=run"], folder))
    assert code == 0, stderr
    assert "stops: " not in stderr
    return folder / "run"


def _records(file: Path) -> Iterator[Any]:
    """The records of a file in the log format of LevelDB, after the 7 bytes of its header."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, start, part = file.read_bytes(), 7, b""
    while start + 7 <= len(data):
        if (left := 32768 - start % 32768) < 7:
            start += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, start)
        part += data[start + 7 : start + 7 + length]
        start += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(part)
            part = b""


def test_wandb_has_each_update_once(folder: Path) -> None:
    files = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert len({file.name for file in files}) == 1  # the id
    records = [record for file in files for record in _records(file)]
    steps = []
    for record in records:
        items = {item.key or item.nested_key[0]: item for item in record.history.item}
        if "train/loss" in items:
            steps.append(int(items["trainer/global_step"].value_json))
    assert steps == list(range(8))
    configs = {item.key for one in records for item in one.config.update}
    assert {"model", "optimizer"} <= configs
    named = {entry.path for one in records for entry in one.artifact.manifest.contents}
    assert {"config.yaml", "test.json"} <= named
