"""A run directory: one writer, a log, and nothing left of a run that does not begin."""

import logging
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from transformer.common.errors import InputError
from transformer.runs.directory import run_directory, run_log


@pytest.fixture(autouse=True)
def configured() -> Iterator[logging.Logger]:
    """A program whose root logger has a handler, and no level below that of warnings."""
    root = logging.getLogger()
    before = list(root.handlers), root.level
    yield root
    root.handlers[:], level = before
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
    tmp_path: Path, configured: logging.Logger, level: int
) -> None:
    configured.setLevel(level)
    file = tmp_path / "train.log"
    first = say(file, resumed=False)
    assert first == [
        *("train: 3 faults", "warning: set it lower", "warning: the disk is full", "going on"),
        "warning: UserWarning: of Lightning",
    ]
    # What happens while it trains is news each time.
    assert say(file, resumed=True) == ["warning: the disk is full", "going on"]
    assert say(file, resumed=True, faults=4)[0] == "train: 4 faults"
    assert say(file, resumed=False) == first


@pytest.mark.parametrize("handlers", [[], [logging.NullHandler()]])
def test_the_program_sees_and_keeps_what_it_had(
    tmp_path: Path,
    configured: logging.Logger,
    handlers: list[logging.Handler],
    capsys: pytest.CaptureFixture[str],
) -> None:
    package = logging.getLogger("transformer")
    own = logging.getLogger("transformer.own")
    configured.handlers[:] = handlers
    records: list[str] = []
    for handler in handlers:
        handler.handle = lambda record: bool(records.append(record.msg))  # type: ignore[method-assign]
    before = package.level, package.propagate, list(package.handlers)
    with run_log(tmp_path / "train.log", resumed=False):
        own.info("for the log")
        own.warning("for all")
        own.setLevel(logging.INFO)
        own.info("asked for")
        own.setLevel(logging.NOTSET)
    assert (package.level, package.propagate, package.handlers) == before
    assert configured.handlers == handlers
    assert len((tmp_path / "train.log").read_text().splitlines()) == 3
    if handlers:
        assert records == ["for all", "asked for"]
    else:
        assert capsys.readouterr().err == "for all\n"


def test_a_folder_where_another_trains_is_left_as_it_is(tmp_path: Path) -> None:
    errors: list[InputError] = []

    def train() -> None:
        try:
            with run_directory(tmp_path):
                pass
        except InputError as error:
            errors.append(error)

    with run_directory(tmp_path):
        (tmp_path / "train.log").touch()
        other = threading.Thread(target=train)
        other.start()
        other.join(10)
        assert [str(error) for error in errors] == [
            f"another process trains in {tmp_path}; wait, stop it, or take another folder"
        ]
        assert {file.name for file in tmp_path.iterdir()} == {".lock", "train.log"}


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OSError, match="/file"), run_directory(folder):  # cli/exit.py: one line
            pass


@pytest.mark.parametrize("file", ["report.html", "metrics.csv"])
def test_a_run_that_ends_at_its_start_leaves_no_folder(tmp_path: Path, file: str) -> None:
    def fail() -> None:
        for name in ("config.yaml", "run.json", "report.json", file):
            (tmp_path / "run" / name).touch()
        raise InputError("no memory")

    with pytest.raises(InputError), run_directory(tmp_path / "run"):
        fail()
    assert (tmp_path / "run").exists() is (file == "metrics.csv")
