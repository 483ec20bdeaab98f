"""What a training command shows on stderr."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from transformer.cli.train import log_to_stderr


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)


def test_ranks_other_than_0_only_warn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(3, tmp_path / "train.log")
    logging.getLogger("transformer").warning("beware")
    logging.getLogger("transformer").info("nothing")
    assert capsys.readouterr().err.endswith(" rank 3: warning: beware\n")
    log_to_stderr(0, tmp_path / "train.log")
    logging.getLogger("transformer").info("something")
    assert capsys.readouterr().err.endswith(" something\n")
