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
from tests.helpers.runs.runs import composed
from transformer.checkpoint.averaging import average_checkpoints
from transformer.checkpoint.checkpoint import read_payload
from transformer.checkpoint.run_directory import is_locked, read_config
from transformer.common.errors import InputError
from transformer.runs.report import run_report
from transformer.runs.train import train
from transformer.settings.run import RunConfig

SHORT = (
    "trainer.max_steps=4",
    "trainer.val_check_interval=2",
    "report=end",
    "seed=7",
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
    # Shorter than trainer.log_every_n_steps=5, it has one line.
    assert re.search(r"update 4/4, epoch [\d.]+: loss \d", log)
    assert "done; new text: transformer translate" in log
    # The command resumes it, and takes what it has.
    resume = [f"checkpoint={python}", "trainer.max_steps=6"]
    assert call(resume, tmp_path) == 0
    assert "update 5/6" in (python / "train.log").read_text()


def keys_of_page(heading: str) -> dict[str, str]:
    """The keys in a table of docs/checkpoint.md, and the files that they are in."""
    page = (PROJECT / "docs" / "checkpoint.md").read_text("utf-8")
    rows = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].splitlines()
    cells = [row.split(" | ") for row in rows if row.startswith("| `")]
    return {row[0].strip("| `"): row[2] for row in cells}


@pytest.mark.thorough
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
        self.config = config
        self.folder = folder
        self.errors: list[str] = []

    def try_to_train(self) -> None:
        try:
            train(self.config, self.folder)
        except InputError as error:
            self.errors.append(str(error))

    def on_train_start(self, *_: object) -> None:
        thread = threading.Thread(target=self.try_to_train)
        thread.start()
        thread.join()
        child = os.fork()
        if not child:
            self.try_to_train()
            os._exit(len(self.errors))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert is_locked(self.folder)


def test_a_second_run_in_the_folder_is_refused(config: RunConfig, tmp_path: Path) -> None:
    second = Second(config, tmp_path / "run")
    metrics = train(config, tmp_path / "run", callbacks=[second])
    [refusal] = second.errors
    assert f"another process trains in {tmp_path / 'run'}" in refusal
    assert metrics["val/bleu"] >= 0
    assert not is_locked(tmp_path / "run")
    with pytest.raises(InputError, match=r"holds a run: resume with checkpoint="):
        train(config, tmp_path / "run")


def process_state() -> dict[str, Any]:
    loggers = ["transformer", "sacrebleu", "pytorch_lightning", "lightning_fabric"]
    return {
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
        "filters": list(warnings.filters),
        "loggers": [
            (logger.level, logger.propagate, list(logger.handlers))
            for logger in map(logging.getLogger, [None, *loggers])
        ],
        "products": torch.get_float32_matmul_precision(),
        "duck shapes": shape_settings.use_duck_shape,
        "torch": torch.get_rng_state().tolist(),
        "numpy": np.random.get_state()[1].tolist(),  # type: ignore[index,union-attr]
        # Without the position in it: beartype, which checks calls in tests, draws numbers.
        "random": random.getstate()[1][:-1],
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
    assert process_state() == before
    with pytest.raises(InputError):
        train(replace(config, finetune_from=tmp_path / "missing"), tmp_path / "other")
    assert process_state() == before
    assert not (tmp_path / "other").exists()
