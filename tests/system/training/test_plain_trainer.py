"""Lightning's own trainer fits the module and the data, in one process and in two."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers.data.text import write_parallel
from tests.helpers.runs.processes import PROJECT
from transformer.decoding.translator import Translator
from transformer.quality.failures.thresholds import FILE

pytestmark = pytest.mark.thorough

PROGRAM = """
import json
import sys

import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger

from transformer import DataConfig, ModelConfig, OptimizerConfig, RunConfig, ScheduleConfig
from transformer import TokenizerConfig, TrainerConfig, TranslationData, TranslationModule

devices, batches, limits = json.loads(sys.argv[1])
folder = sys.argv[2]
config = RunConfig(
    data=DataConfig(
        corpus="files",
        source="en",
        target="de",
        train=("train.src", "train.tgt"),
        validation=("valid.src", "valid.tgt"),
        test_size=0,
        batch_tokens=256,
    ),
    tokenizer=TokenizerConfig(vocab_size=310),
    model=ModelConfig(d_model=16, num_heads=2, encoder_layers=1, decoder_layers=1),
    optimizer=OptimizerConfig(lr=1e-3),
    schedule=ScheduleConfig(warmup=2),
    trainer=TrainerConfig(accumulate_grad_batches=batches),
)
torch.manual_seed(1)
data = TranslationData(config)
module = TranslationModule(config, data.tokenizer)
callbacks = [
    LearningRateMonitor("step"),
    ModelCheckpoint(folder, monitor="val/bleu", mode="max", filename="best"),
    EarlyStopping("val/bleu", mode="max", patience=1, min_delta=1000.0),
]
trainer = Trainer(
    accelerator="cpu",
    devices=devices,
    strategy="auto",
    logger=CSVLogger(folder, name="", version=""),
    callbacks=callbacks,
    check_val_every_n_epoch=None,
    val_check_interval=4,
    log_every_n_steps=1,
    **limits,
)
trainer.fit(module, data)
if devices == 1:
    for best in (None, callbacks[1].best_model_path):
        (values,) = trainer.validate(module, data, ckpt_path=best)
        assert {"val/loss", "val/bleu"} <= values.keys()
"""


def fitted(home: Path, name: str, devices: int, batches: int, **limits: int) -> list[str]:
    """Lines of stderr of a program that trains in the folder NAME."""
    (home / "program.py").write_text(PROGRAM)
    call = [sys.executable, "program.py", json.dumps([devices, batches, limits]), name]
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(call, cwd=home, env=environment, capture_output=True, timeout=240)
    return [str(done.returncode), *done.stderr.decode().splitlines()]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    for name, count in (("train", 400), ("valid", 20)):
        write_parallel(folder, name, count, count, list)
    return folder


def test_one_process_and_two_learn_alike_with_stock_callbacks(home: Path) -> None:
    for name, devices, batches in (("one", 1, 2), ("two", 2, 1)):
        code, *lines = fitted(home, name, devices, batches, max_steps=20)
        assert code == "0", "\n".join(lines)
    one, two = (torch.load(home / name / "best.ckpt", weights_only=True) for name in ("one", "two"))
    # Early stopping: no score is better by 1,000 than the first, after update 4.
    with (home / "one" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert max(int(row["step"]) for row in rows if row["train/loss"]) == 7
    assert {"val/bleu", "val/loss", "train/loss", "lr-Adam/pg1"} <= rows[0].keys()
    # The checks of text and outputs belong to our runs.
    assert not [name for name in rows[0] if "failures" in name]
    assert not list(home.rglob(FILE))
    assert one["global_step"] == two["global_step"]
    for key, weight in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][key], weight, rtol=0, atol=1e-5)
    translator = Translator.load(home / "one" / "best.ckpt")
    assert len(translator.translate(["alpha beta", ""])) == 2


def test_a_training_without_an_end_is_refused(home: Path) -> None:
    code, *lines = fitted(home, "epochs", 1, 1, max_epochs=3)
    assert code == "1"
    assert lines[-1].endswith("an epoch has no end here; set max_steps or max_time")
