"""Files are written whole, under names that nobody knows before, and through no link."""

from pathlib import Path

import pytest

from transformer.cli.train.run_log import log_to
from transformer.common.files import open_unlinked, written_whole
from transformer.training.callbacks.loggers import ContinuedCSVLogger
from transformer.training.checkpointing.run_directory import locked, mark_finished


def linked(folder: Path, name: str) -> Path:
    """A link, where a file is to be written, to somebody's file; which is returned."""
    victim = folder / "victim"
    victim.write_text("precious\n")
    (folder / name).symlink_to(victim)
    return victim


def test_a_link_is_not_opened(tmp_path: Path) -> None:
    victim = linked(tmp_path, "train.log")
    for mode in ("a", "w", "r+b"):
        with pytest.raises(OSError, match="symbolic links"):
            open_unlinked(tmp_path / "train.log", mode)
    assert victim.read_text() == "precious\n"


def test_no_file_of_a_run_is_written_through_a_link(tmp_path: Path) -> None:
    for name in ("train.log", "finished", ".lock", "metrics.csv"):
        folder = tmp_path / name
        folder.mkdir()
        victim = linked(folder, name)
        with pytest.raises(Exception, match="symbolic links"):
            match name:
                case "train.log":
                    log_to(folder / name, 0)
                case "finished":
                    mark_finished(folder)
                case ".lock":
                    with locked(folder):
                        pass
                case _:
                    _ = ContinuedCSVLogger(folder).rows
        assert victim.read_text() == "precious\n"


def test_the_name_of_an_unfinished_file_cannot_be_guessed(tmp_path: Path) -> None:
    names = set()
    for _ in range(20):
        with written_whole(tmp_path / "x") as part:
            part.write_text("whole")
            names.add(part.name)
    assert len(names) == 20
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
