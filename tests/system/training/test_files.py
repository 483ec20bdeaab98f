"""Sources that are files, in whole runs: several processes, resumption, streams, bad files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.helpers.data.sounds import write_sounds, write_tones
from tests.helpers.runs.ranks import OF_RANKS, curve, distance
from tests.helpers.runs.runs import verb

SETTINGS = (
    *(setting for setting in OF_RANKS if not setting.startswith("tokenizer")),
    "data.speech.time_mask=4",
    "trainer.val_check_interval=2",
    "trainer.log_every_n_steps=1",
    "report=none",
)
ONE = ("trainer.max_steps=4", "trainer.accumulate_grad_batches=2")
TWO = ("trainer=ddp", "trainer.accelerator=cpu", "data.workers=0", "trainer.devices=2")
STREAM = ("data.streaming=true", "data.buffer=30", "trainer.max_steps=4")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sounds")
    overrides = write_sounds(folder, train=60, validation=6, test=4)
    (folder / "corpus").write_text("\n".join([*SETTINGS, *overrides]))
    return folder


def trained(home: Path, *more: str, run: str) -> None:
    corpus = (home / "corpus").read_text().splitlines()
    code, _, stderr = verb("train", *corpus, *more, f"hydra.run.dir={run}", home=home)
    assert code == 0, stderr


def test_a_model_of_sounds_is_trained_and_translates(home: Path) -> None:
    trained(home, *ONE, run="small")
    sounds = b"test/0.wav\ntest/1.wav#t=0,0.06\n"
    code, stdout, stderr = verb("translate", "checkpoint=small", home=home, stdin=sounds)
    assert code == 0, stderr
    assert stdout.count("\n") == 2


def test_a_damaged_sound_is_named_before_training(home: Path, tmp_path: Path) -> None:
    overrides = [*write_sounds(tmp_path, train=20, validation=2), "data.test_size=0"]
    (tmp_path / "train/7.wav").write_bytes(b"RIFF")
    code, _, stderr = verb("train", *overrides, "hydra.run.dir=bad", home=home)
    assert code == 2
    text = f"{tmp_path}/train.tsv"
    assert f"{text}:8: {tmp_path}/train/7.wav: not a sound" in stderr.splitlines()[-1]
    write_tones(tmp_path / "train/7.wav", ["one"])
    (tmp_path / "train/8.wav").unlink()
    code, _, stderr = verb("train", *overrides, "hydra.run.dir=bad", home=home)
    assert code == 2
    assert f"{text}:9: {tmp_path}/train/8.wav: no such file" in stderr.splitlines()[-1]


@pytest.mark.thorough
def test_bytes_of_parquet_train_as_files_do(home: Path) -> None:
    rows = [line.split("\t") for line in (home / "train.tsv").read_text().splitlines()]
    sounds = [(home / name).read_bytes() for name, _ in rows]
    columns = {"first": [b"no sound"] * len(rows), "sound": sounds, "en": [row[1] for row in rows]}
    pq.write_table(pa.table(columns), home / "train.parquet", row_group_size=25)
    trained(home, *ONE, run="files")
    trained(home, *ONE, f"data.train={home}/train.parquet", run="rows")
    assert distance(curve(home / "rows"), curve(home / "files")) == 0


@pytest.mark.thorough
def test_two_processes_train_as_one_does(home: Path) -> None:
    trained(home, *ONE, run="one")
    trained(home, *TWO, "trainer.max_steps=4", run="two")
    assert distance(curve(home / "two"), curve(home / "one")) < 1e-5


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [ONE, STREAM], ids=["whole", "stream"])
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(
    home: Path, settings: tuple[str, ...]
) -> None:
    name = settings[0].partition("=")[0]
    trained(home, *settings, "schedule.total=4", "trainer.max_steps=2", run=f"{name}_parts")
    call = ["train", f"checkpoint={name}_parts", "trainer.max_steps=4"]
    code, _, stderr = verb(*call, home=home)
    assert code == 0, stderr
    trained(home, *settings, "schedule.total=4", run=f"{name}_whole")
    whole, parts = (
        torch.load(home / f"{name}_{run}" / "checkpoints" / "last.ckpt", weights_only=True)
        for run in ("whole", "parts")
    )
    for key in ("state_dict", "optimizer_states"):
        torch.testing.assert_close(parts[key], whole[key], rtol=0, atol=0)
