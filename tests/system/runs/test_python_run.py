"""A run from Python makes what the command makes, has its folder alone, and changes no process."""

import logging
import os
import random
import re
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback
from torch.fx.experimental import _config as shape_settings

from tests.helpers.runs.outcomes import differences, outcome
from tests.helpers.runs.processes import PROJECT, call, tiny_overrides
from tests.helpers.runs.runs import composed, run
from transformer.checkpoint.averaging import average_checkpoints
from transformer.checkpoint.checkpoint import read_payload
from transformer.checkpoint.run_directory import is_locked, read_config
from transformer.common.errors import InputError
from transformer.runs.report import run_report
from transformer.runs.resume import resumed_config
from transformer.runs.train import train
from transformer.settings.run import RunConfig

SHORT = (
    *("trainer.max_steps=4", "trainer.val_check_interval=2", "trainer.log_every_n_steps=2"),
    *("report=end", "seed=7"),
)


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """The settings of a short run."""
    return composed([*tiny_overrides(tmp_path), *SHORT], tmp_path / "cache")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_python_and_the_command_make_the_same_directory(config: RunConfig, tmp_path: Path) -> None:
    python, command = tmp_path / "python", tmp_path / "command"
    train(config, python)
    overrides = [*tiny_overrides(tmp_path), *SHORT, f"hydra.run.dir={command}"]
    assert call(overrides, tmp_path) == 0
    assert files(python) == files(command) >= {"config.yaml", "train.log", "report.html", ".lock"}
    assert read_config(python) == read_config(command) == config
    for name in ("config.yaml", "test.json", "test.hyp"):
        assert (python / name).read_bytes() == (command / name).read_bytes(), name
    assert differences(outcome(python), outcome(command)) == []
    assert run_report([python])["runs"][0]["state"] == "finished"
    log = (python / "train.log").read_text()
    assert "update 4/4" in log and "done; new text: transformer translate" in log
    # The command resumes it, and takes what it has.
    resume = [f"checkpoint={python}", "trainer.max_steps=6"]
    assert call(resume, tmp_path) == 0
    assert "update 6/6" in (python / "train.log").read_text()


class Mapped(Callback):
    """Notes whether the last checkpoint is mapped into memory, before training and after."""

    def __init__(self) -> None:
        self.mapped: dict[str, bool] = {}

    def setup(self, *_: object, **__: object) -> None:
        self.mapped["before"] = _maps("last.ckpt")

    def on_train_batch_end(self, *_: object) -> None:
        self.mapped["after"] = _maps("last.ckpt")


def _maps(name: str) -> bool:
    return name in Path("/proc/self/maps").read_text()


def test_training_does_not_keep_the_file_mapped(config: RunConfig, tmp_path: Path) -> None:
    averaged = replace(config, callbacks=replace(config.callbacks, ema_decay=0.9))
    train(averaged, tmp_path / "run")
    look, resumed = Mapped(), resumed_config(tmp_path / "run", {"trainer.max_steps": 6})
    train(resumed, tmp_path / "run", callbacks=[look])
    assert look.mapped == {"before": True, "after": False}


def keys_of_page(heading: str) -> dict[str, str]:
    """The keys in a table of docs/checkpoint.md, and the files that they are in."""
    page = (PROJECT / "docs" / "checkpoint.md").read_text("utf-8")
    rows = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].splitlines()
    cells = [row.split(" | ") for row in rows if row.startswith("| `")]
    return {row[0].strip("| `"): row[2] for row in cells}


def test_a_run_writes_the_keys_of_the_page(config: RunConfig, tmp_path: Path) -> None:
    averaged = replace(
        config,
        callbacks=replace(config.callbacks, ema_decay=0.9),
        logger=replace(config.logger, tensorboard=True),
    )
    train(averaged, tmp_path / "run")
    keys = keys_of_page("Keys")
    not_here = {"records", "shards"}  # Weights & Biases; several ranks
    for name, files in (("last", "all training"), ("best", "all training"), ("step", "all step")):
        [*_, file] = sorted((tmp_path / "run" / "checkpoints").glob(f"{name}*.ckpt"))
        payload = read_payload(file)
        in_file = {key for key in keys if {*files.split()} & {*re.findall(r"\w+", keys[key])}}
        assert payload.keys() == in_file - not_here, name
        assert payload["transformer"].keys() == keys_of_page("The portable part").keys()
    plain = average_checkpoints([file])
    assert plain.keys() == {key for key in keys if keys[key] == "all"}
    without_average = {key for key in keys if "EMA" in keys[key]}
    train(config, tmp_path / "plain")
    payload = read_payload(tmp_path / "plain" / "checkpoints" / "last.ckpt")
    assert payload.keys() == keys.keys() - not_here - without_average - {"metrics_steps"}


class Second(Callback):
    """Tries to train in the folder of a run that trains."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.config, self.folder, self.errors = config, folder, list[str]()

    def try_to_train(self) -> None:
        try:
            train(self.config, self.folder)
        except InputError as error:
            self.errors.append(str(error))

    def on_train_start(self, *_: object) -> None:
        self.try_to_train()
        other = threading.Thread(target=self.try_to_train)
        other.start()
        other.join()
        child = os.fork()
        if not child:
            self.try_to_train()
            os._exit(len(self.errors))
        self.errors += [self.errors[0]] * (os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) - 2)
        assert is_locked(self.folder)


def test_a_second_run_in_the_folder_is_refused(config: RunConfig, tmp_path: Path) -> None:
    second = Second(config, tmp_path / "run")
    metrics = train(config, tmp_path / "run", callbacks=[second])
    refusal = f"another process trains in {tmp_path / 'run'}; wait, stop it, or take another folder"
    assert second.errors == [refusal] * 3
    assert metrics["val/bleu"] >= 0
    assert not is_locked(tmp_path / "run")
    with pytest.raises(InputError, match=r"holds a run: resume with checkpoint="):
        train(config, tmp_path / "run")


def process_state() -> dict[str, Any]:
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    return {
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
        "filters": list(warnings.filters),
        "loggers": {
            one.name: (one.level, one.propagate, list(one.handlers))
            for one in loggers
            if isinstance(one, logging.Logger)
            and one.name.startswith(("root", "transformer", "sacrebleu"))
        },
        "lightning": [
            logging.getLogger(n).level for n in ("pytorch_lightning", "lightning_fabric")
        ],
        "products": torch.get_float32_matmul_precision(),
        "duck shapes": shape_settings.use_duck_shape,
        "torch": torch.get_rng_state().tolist(),
        "numpy": np.random.get_state()[1].tolist(),  # type: ignore[index,union-attr]
        # Without the position in it: beartype, which checks calls in tests, draws numbers.
        "random": random.getstate()[1][:-1],
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
    }


def test_the_process_is_left_as_it_was(config: RunConfig, tmp_path: Path) -> None:
    class Changes(Callback):
        """What compiled layers and precision=auto set on a GPU."""

        def on_train_start(self, *_: object) -> None:
            torch.set_float32_matmul_precision("high")
            shape_settings.use_duck_shape = False

    random.seed(1)
    random.random()
    before = process_state()
    train(config, tmp_path / "run", callbacks=[Changes()])
    after = process_state()
    new = {"loggers": {**after["loggers"], **before["loggers"]}}  # loggers are made when needed
    assert after["loggers"] == new["loggers"]
    assert {**after, **new} == {**before, **new}
    with pytest.raises(InputError):
        train(replace(config, finetune_from=tmp_path / "missing"), tmp_path / "other")
    assert {**process_state(), **new} == {**before, **new}
    assert not (tmp_path / "other").exists()


PROGRAM = """
from pathlib import Path
from threading import Thread
from urllib.request import urlopen
from transformer import *

def ask(service):
    print(urlopen(f"{service.url}/translate", b"q=alpha&source=en&target=de").status)
    service.stop()

text = {s: (f"{s}.src", f"{s}.tgt") for s in ("train", "validation", "test")}
config = RunConfig(
    data=DataConfig(corpus="files", source="src", target="tgt", batch_tokens=96, **text),
    tokenizer=TokenizerConfig(vocab_size=285),
    model=ModelConfig(d_model=16, num_heads=2, ffn_dim=16, encoder_layers=1, decoder_layers=1),
    trainer=TrainerConfig(max_steps=4, val_check_interval=2),
    decoding=SearchConfig(algorithm="greedy", beam_size=1),
    schedule=ScheduleConfig(warmup=2),
)
train(config, "first")
train(resumed_config("first", {"trainer.max_steps": 6}), "first")
train(finetuned_config(config, "first"), "second")
tested = evaluate(EvaluateConfig("second", split="validation", output=Path("scores")))
found = compare(CompareConfig(runs=("first", "second"), bootstrap=9, randomization=9))
mean = average(AverageConfig(checkpoint=Path("first"), last=2))
tuned = tune(TuneConfig(checkpoint=Path("second"), beam_sizes=[2], length_penalties=[1.0]))
copy = export(ExportConfig("second", format="safetensors", sentences=None))
print(tested.scores[0].name, len(found.metrics), mean.file, tuned.file, copy.folder)
serving = ServeConfig(checkpoint="second", languages=["en-de"], port=0)
serve(serving, started=lambda service: Thread(target=ask, args=[service]).start())
"""
WITHOUT_HYDRA = 'import sys; assert not {"hydra", "transformer.cli"} & {*sys.modules}'


@pytest.mark.thorough
def test_a_program_does_what_commands_do_without_hydra(tmp_path: Path) -> None:
    tiny_overrides(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM + WITHOUT_HYDRA)
    ended = run("program.py", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr.decode()
    name, metrics, *written, status = ended.stdout.decode().split()
    assert (name, metrics, status) == ("BLEU", "2", "200")
    assert b"nrefs" not in ended.stderr  # functions log, and print nothing
    assert len(written) == 3 and all((tmp_path / path).exists() for path in written)
    assert files(tmp_path / "scores") >= {"validation.hyp", "validation.json"}
