"""Files are written whole, under random names, and through no link; a folder has one writer."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from transformer.checkpoint.run_directory import locked, mark_finished
from transformer.common import files
from transformer.common.errors import InputError
from transformer.common.files import new_folder, open_unlinked, written_whole
from transformer.runs.directory import run_log
from transformer.training.callbacks.loggers import ContinuedCSVLogger


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
                    with run_log(folder / name, resumed=False):
                        pass
                case "finished":
                    mark_finished(folder)
                case ".lock":
                    with locked(folder):
                        pass
                case _:
                    _ = ContinuedCSVLogger(folder).rows
        assert victim.read_text() == "precious\n"


def test_a_file_or_folder_is_synced_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []
    fsync = os.fsync

    def seen(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, named.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    named = tmp_path / "file"
    with written_whole(named) as part:
        part.write_text("whole")
    own = tmp_path.stat().st_ino
    assert synced == [(named.stat().st_ino, False), (own, True)]
    synced.clear()
    named = tmp_path / "folder"
    with written_whole(named) as part:
        (part / "in").mkdir(parents=True)
        (part / "in" / "file").write_text("whole")
    inside = {path.stat().st_ino for path in (named, named / "in", named / "in" / "file")}
    assert {inode for inode, there in synced if not there} == inside
    assert synced[-1] == (own, True)


KILLED = """
import os, signal, sys
from pathlib import Path
from transformer.common.files import new_folder
with new_folder(Path(sys.argv[1])) as part:
    (part / "weights").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_parts_of_killed_processes_are_removed_and_of_others_kept(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    for name in ("export", "export.int8"):
        call = [sys.executable, "-c", KILLED, str(tmp_path / name)]
        assert subprocess.run(call, check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    with new_folder(folder) as part:
        (part / "weights").touch()
        with pytest.raises(InputError, match="worse"), new_folder(folder) as second:
            assert {part, second} < {*tmp_path.iterdir()}
            assert len(list(tmp_path.iterdir())) == 3
            raise InputError("worse")
    assert sorted(path.name[:12] for path in tmp_path.iterdir()) == ["export", "export.int8."]
    assert (folder / "weights").exists()


def test_a_folder_that_fails_leaves_nothing_that_it_made(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError), new_folder(tmp_path / "run" / "export" / "a" / "b") as part:
        (part / "weights").touch()
        raise InputError("worse")
    assert list(tmp_path.rglob("*")) == [tmp_path / "run"]


def test_a_process_waits_for_the_lock_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    entered = Event()

    def wait() -> None:
        with files.locked(tmp_path):
            entered.set()

    with files.locked(tmp_path):
        waiting = Thread(target=wait)
        waiting.start()
        assert not entered.wait(0.3)
    assert entered.wait(10)
    assert caplog.messages == [f"waiting for another process that is preparing text in {tmp_path}"]
