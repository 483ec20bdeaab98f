"""A log that marks its warnings, and does not repeat itself where a run goes on."""

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


def say(file: Path, *, resumed: bool, faults: int = 3) -> list[str]:
    """What a start adds to the log, without the time."""
    size = len(file.read_text()) if file.exists() else 0
    log_to(file, 0, resumed=resumed)
    logging.getLogger("transformer.data.quality.examination").info("train: %d faults", faults)
    logging.getLogger("transformer.runs.config_warnings").warning("set it lower")
    logging.getLogger("transformer.training.callbacks.loggers").warning("the disk is full")
    logging.getLogger("transformer.runs.train").info("going on")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("of Lightning", stacklevel=1)
    return [line.partition(" ")[2] for line in file.read_text()[size:].splitlines()]


def test_a_resume_says_of_its_start_only_what_is_new(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    first = say(file, resumed=False)
    assert first[:4] == [
        *("train: 3 faults", "warning: set it lower", "warning: the disk is full", "going on")
    ]
    assert "UserWarning: of Lightning" in first[4] and first[4].startswith("warning: ")
    # What happens while it trains is news each time.
    assert say(file, resumed=True) == ["warning: the disk is full", "going on"]
    assert say(file, resumed=True, faults=4)[0] == "train: 4 faults"
    assert say(file, resumed=False) == first


def test_other_ranks_write_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_to(tmp_path / "train.log", 3)
    logging.getLogger("transformer").warning("beware")
    logging.getLogger("transformer").info("nothing")
    assert capsys.readouterr().err.endswith(" rank 3: warning: beware\n")
    assert not (tmp_path / "train.log").exists()
