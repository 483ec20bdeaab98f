"""The run directory: which checkpoint is found, ``config.yaml``, the lock and the marks."""

import errno
import fcntl
import os
import time
from pathlib import Path

import pytest

from transformer.checkpoint.run_directory import (
    LOCK,
    find_checkpoint,
    has_checkpoint,
    is_exported,
    is_locked,
    locked,
    read_config,
    saved_config,
)
from transformer.common.errors import InputError
from transformer.settings.run import RunConfig


def write_files(run: Path, *names: str) -> Path:
    """Empty checkpoints of a run; the folder that holds them."""
    folder = run / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"{name}.ckpt").touch()
    return folder


def test_the_first_of_tuned_best_last_and_previous_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ["tuned", "best", "last", "previous"]
    folder = write_files(tmp_path / "run", *names, "step-00000009")
    for name in names:
        assert find_checkpoint(tmp_path / "run", name) == folder / f"{name}.ckpt"
    for name in names:
        assert find_checkpoint(Path("~/run")) == folder / f"{name}.ckpt"
        assert find_checkpoint(folder / f"{name}.ckpt") == folder / f"{name}.ckpt"
        # The last two can be resumed.
        assert has_checkpoint(tmp_path / "run")
        (folder / f"{name}.ckpt").unlink()
    assert not has_checkpoint(tmp_path / "run")
    # A run may have the name of its folder of checkpoints.
    folder = write_files(tmp_path / "checkpoints", "best")
    assert find_checkpoint(tmp_path / "checkpoints") == folder / "best.ckpt"
    assert not has_checkpoint(tmp_path / "checkpoints")


def test_what_has_no_checkpoint_is_refused_with_advice(tmp_path: Path) -> None:
    write_files(tmp_path / "runs/files/2026-11-20", "best")
    newest = tmp_path / "runs/files/2026-11-21"
    folder = write_files(newest, "best")
    os.utime(folder, (2**31, 2**31))
    write_files(tmp_path / "stopped")
    (tmp_path / "empty").mkdir()
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "model.bin").touch()
    for path, message in {
        "nowhere": "nowhere does not exist",
        "export": "engine=ctranslate2",
        "x" * 300: "cannot be read: File name too long",
        "runs": f"the newest in it is {newest}$",
        "runs/files": f"the newest in it is {newest}$",
        "runs/files/2026-11-22": r"did you mean .*/2026-11-2[01]",
        "runs/files/2026-11-21/checkpoints": f"give its run, {newest}, or",
        "stopped": "holds no checkpoint: its run was stopped",
        "empty": "holds no checkpoints folder",
    }.items():
        with pytest.raises(InputError, match=message):
            find_checkpoint(tmp_path / path)
        assert not is_exported(tmp_path / path)
    with pytest.raises(InputError, match=r"no last.ckpt or previous.ckpt; give .*/best\.ckpt$"):
        find_checkpoint(newest, "last")


FORMER = RunConfig(seed=1)
NOW = RunConfig(seed=2)


def test_the_config_is_that_of_the_last_checkpoint(tmp_path: Path) -> None:
    with saved_config(FORMER, tmp_path):
        last = write_files(tmp_path, "last") / "last.ckpt"
    with pytest.raises(InputError, match="refused"), saved_config(NOW, tmp_path):
        assert read_config(tmp_path) == NOW
        raise InputError("refused")
    assert read_config(tmp_path) == FORMER
    with pytest.raises(InputError, match="diverges"), saved_config(NOW, tmp_path):
        last.with_name("new").touch()
        os.replace(last.with_name("new"), last)
        raise InputError("diverges")
    assert read_config(tmp_path) == NOW
    # A damaged checkpoint is renamed, and the former config stays.
    with pytest.raises(InputError, match="refused"), saved_config(FORMER, tmp_path):
        last.unlink()
        raise InputError("refused")
    assert read_config(tmp_path) == NOW


def test_a_damaged_config_counts_as_none(tmp_path: Path) -> None:
    assert read_config(tmp_path) is None
    for content in (b"a: [1, 2", b"- 1", b"\xff\xfe\x00"):
        (tmp_path / "config.yaml").write_bytes(content)
        assert read_config(tmp_path) is None


def test_one_process_trains_in_a_directory(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    (tmp_path / LOCK).touch()
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(InputError, match="another process trains in"), locked(tmp_path):
            pass
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_a_killed_process_holds_no_lock_even_if_its_children_live(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with locked(tmp_path):
            if not os.fork():  # such as a process that loads data: it may live longer
                os.write(writer, b"1")
                time.sleep(5)
                os._exit(0)
            os.read(reader, 1)
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        pass


def test_a_disk_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(InputError, match="cannot be locked: No locks"), locked(tmp_path):
        pass
