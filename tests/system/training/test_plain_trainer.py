"""Lightning's own trainer fits the module and the data, in one process and in two."""

import csv
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
import sys

import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger

from transformer import DataConfig, ModelConfig, OptimizerConfig, RunConfig, ScheduleConfig
from transformer import TokenizerConfig, TrainerConfig, TranslationData, TranslationModule

folder = sys.argv[1]
devices = int(sys.argv[2])
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
    trainer=TrainerConfig(accumulate_grad_batches=int(sys.argv[3])),
)
torch.manual_seed(1)
data = TranslationData(config)
module = TranslationModule(config, data.tokenizer)
callbacks = [
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
    max_steps=20,
)
trainer.fit(module, data)
if devices == 1:
    for best in (None, callbacks[0].best_model_path):
        (values,) = trainer.validate(module, data, ckpt_path=best)
        assert {"val/loss", "val/bleu"} <= values.keys()
"""


def test_one_process_and_two_learn_alike_with_stock_callbacks(tmp_path: Path) -> None:
    for name, count in (("train", 400), ("valid", 20)):
        write_parallel(tmp_path, name, count, count, list)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    for folder, devices, accumulation in (("one", "1", "2"), ("two", "2", "1")):
        call = [sys.executable, "program.py", folder, devices, accumulation]
        done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, timeout=240)
        assert done.returncode == 0, done.stderr.decode()
    one, two = (torch.load(tmp_path / x / "best.ckpt", weights_only=True) for x in ("one", "two"))
    assert one["global_step"] == two["global_step"]
    torch.testing.assert_close(two["state_dict"], one["state_dict"], rtol=0, atol=1e-5)
    # Early stopping: no score is better by 1,000 than the first, after update 4.
    with (tmp_path / "one" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert max(int(row["step"]) for row in rows if row["train/loss"]) == 7
    assert {"val/bleu", "val/loss", "train/loss"} <= rows[0].keys()
    # The checks of text and outputs belong to our runs.
    assert not [name for name in rows[0] if "failures" in name]
    assert not list(tmp_path.rglob(FILE))
    translator = Translator.load(tmp_path / "one" / "best.ckpt")
    assert len(translator.translate(["alpha beta", ""])) == 2
