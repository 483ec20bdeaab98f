"""A run directory: one writer, a log, and nothing left of a run that does not begin."""

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from transformer.common.errors import InputError
from transformer.runs.directory import run_directory, run_log


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    """The root logger of a program, with a handler, and no level below that of warnings."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    level = root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def say(file: Path, *, resumed: bool, faults: int = 3) -> list[str]:
    """What a start adds to the log, without the time."""
    size = len(file.read_text()) if file.exists() else 0
    with run_log(file, resumed=resumed), warnings.catch_warnings():
        logging.getLogger("transformer.quality.examination").info("train: %d faults", faults)
        logging.getLogger("transformer.runs.config_warnings").warning("set it lower")
        logging.getLogger("transformer.training.callbacks.loggers").warning("the disk is full")
        logging.getLogger("transformer.runs.train").info("going on")
        logging.getLogger("py.warnings").warning("UserWarning: of Lightning")
    return [line.partition(" ")[2] for line in file.read_text()[size:].splitlines()]


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO])
def test_a_resume_says_of_its_start_only_what_is_new(
    tmp_path: Path, root: logging.Logger, level: int
) -> None:
    root.setLevel(level)
    file = tmp_path / "train.log"
    first = say(file, resumed=False)
    assert first == [
        "train: 3 faults",
        "warning: set it lower",
        "warning: the disk is full",
        "going on",
        "warning: UserWarning: of Lightning",
    ]
    # What happens while it trains is news each time.
    assert say(file, resumed=True) == ["warning: the disk is full", "going on"]
    assert say(file, resumed=True, faults=4)[0] == "train: 4 faults"
    assert say(file, resumed=False) == first


def test_the_program_sees_and_keeps_what_it_had(
    tmp_path: Path,
    root: logging.Logger,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    package = logging.getLogger("transformer")
    logger = logging.getLogger("transformer.own")
    before = package.level, package.propagate, list(package.handlers)
    with run_log(tmp_path / "train.log", resumed=False):
        logger.info("for the log")
        logger.warning("for all")
        with caplog.at_level(logging.INFO, logger.name):
            logger.info("asked for")
        root.handlers.clear()
        logger.warning("printed by Python")
    assert (package.level, package.propagate, package.handlers) == before
    assert caplog.messages == ["for all", "asked for"]
    assert capsys.readouterr().err == "printed by Python\n"
    assert len((tmp_path / "train.log").read_text().splitlines()) == 4


@pytest.mark.parametrize("file", ["report.html", "metrics.csv"])
def test_a_run_that_ends_at_its_start_leaves_no_folder(tmp_path: Path, file: str) -> None:
    def fail() -> None:
        for name in ("config.yaml", "run.json", "report.json", file):
            (run / name).touch()
        raise InputError("no memory")

    (tmp_path / "before").mkdir()
    run = tmp_path / "before" / "new" / "inner" / "run"
    with pytest.raises(InputError), run_directory(run):
        fail()
    assert run.exists() is (file == "metrics.csv")
    assert (tmp_path / "before" / "new").exists() is (file == "metrics.csv")
    assert (tmp_path / "before").exists()
    # A parent that has something else stays.
    with pytest.raises(InputError), run_directory(tmp_path / "made" / "run"):
        (tmp_path / "made" / "notes").touch()
        raise InputError("no memory")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["notes"]
