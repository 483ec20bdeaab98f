"""Small runs for all tests of the verbs, and of the benchmarks that train."""

import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from benchmarks.support.trained import Trained
from tests.helpers.runs.outcomes import said
from tests.helpers.runs.processes import call
from tests.helpers.runs.runs import SMALL, corpus_overrides


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and a trained run, a copy of the one that all workers share."""
    own = tmp_path_factory.mktemp("home")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        train_home(own)
        return own
    shared = tmp_path_factory.getbasetemp().parent / "home"
    with FileLock(shared.with_suffix(".lock")):
        if not shared.exists():
            shared.mkdir()
            train_home(shared)
    return shutil.copytree(shared, own, dirs_exist_ok=True)


def train_home(folder: Path) -> None:
    arguments = [
        *corpus_overrides(folder),
        *SMALL,
        "hydra.run.dir=run",
        "trainer.max_steps=30",
        "trainer.val_check_interval=10",
        "trainer.log_every_n_steps=10",
        "callbacks.ema_decay=0.9",
        "decoding.beam_size=2",
        # BLEU is 0 for a model of a few updates, and that with the lowest loss would say nothing.
        "metrics.choose=chrf",
    ]
    assert call(arguments, folder) == 0, said(folder)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Four updates, two validations, a test."""
    folder = tmp_path_factory.mktemp("results")
    bounds = ["trainer.max_steps=4", "trainer.val_check_interval=2", "callbacks.keep_last=2"]
    where = f"data.cache={folder / 'cache'}"
    languages = ("data.source=en", "data.target=de")
    overrides = (*corpus_overrides(folder), *languages, *SMALL, *bounds, "decoding=greedy", where)
    run = Trained(overrides, folder / "run")
    run.train(threads=1)
    return run
