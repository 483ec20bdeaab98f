"""A log that marks its warnings."""

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from transformer.cli.train.run_log import log_to


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    # It does nothing the second time, and another test may have trained in this process.
    logging.captureWarnings(False)
    yield
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)


def test_warnings_are_marked_and_a_log_is_added_to(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text("12:00:00 before\n")
    log_to(file, 0)
    logging.getLogger("transformer.runs.config_warnings").warning("set it lower")
    logging.getLogger("transformer.runs.train").info("going on")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("of Lightning", stacklevel=1)
    lines = [line.partition(" ")[2] for line in file.read_text().splitlines()]
    assert lines[:3] == ["before", "warning: set it lower", "going on"]
    assert "UserWarning: of Lightning" in lines[3] and lines[3].startswith("warning: ")


def test_other_ranks_write_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_to(tmp_path / "train.log", 3)
    logging.getLogger("transformer").warning("beware")
    logging.getLogger("transformer").info("nothing")
    assert capsys.readouterr().err.endswith(" rank 3: warning: beware\n")
    assert not (tmp_path / "train.log").exists()
