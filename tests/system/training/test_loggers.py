"""Weights & Biases, offline, and MLflow, in SQLite, hold one record of a run that was killed.

pip install -e '.[wandb,mlflow]'; then pytest tests/system/training/test_loggers.py
"""

import json
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs.ranks import ended, started
from tests.helpers.runs.runs import SMALL, corpus_overrides

KILLED = """
import os, signal, time
from transformer.training.step.update_module import UpdateModule
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
    names = [name for name in ("wandb", "mlflow") if find_spec(name)]
    if not names:
        pytest.skip("neither wandb nor mlflow is installed")
    settings = [*corpus_overrides(folder), *SMALL, f"logger=[{','.join(names)}]"]
    settings += ["logger.wandb.offline=true"] * ("wandb" in names)
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


def test_mlflow_has_each_update_once(folder: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (experiment,) = (one for one in client.search_experiments() if one.name == "transformer")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    for name in ("train/loss", "epoch"):
        steps = [one.step for one in client.get_metric_history(run.info.run_id, name)]
        assert sorted(set(steps)) == list(range(8))
        assert len(steps) == 8 or name == "epoch"
    assert run.data.params["model/d_model"] == "64"
    (bleu, *_) = json.loads((folder / "test.json").read_text())
    assert run.data.metrics["test/bleu"] == pytest.approx(bleu["score"], abs=0.01)
    names = {one.path for one in client.list_artifacts(run.info.run_id)}
    assert names == {"config.yaml", "test.json"}


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
    pytest.importorskip("wandb")
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
