"""A small run for all tests of the verbs."""

from pathlib import Path

import pytest

from tests.helpers.runs import PROJECT, SMALL, corpus_overrides, run


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and a trained run."""
    folder = tmp_path_factory.mktemp("home")
    arguments = [
        *corpus_overrides(folder),
        *SMALL,
        "hydra.run.dir=run",
        "trainer.max_steps=30",
        "trainer.val_check_interval=10",
        "trainer.log_every_n_steps=10",
        "callbacks.ema_decay=0.9",
        "decoding.beam_size=2",
    ]
    done = run(str(PROJECT / "train.py"), *arguments, folder=folder)
    assert done.returncode == 0, done.stderr.decode()
    return folder
