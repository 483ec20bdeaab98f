"""Finds the checkpoint of a run."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.model.models import tiny_payload
from transformer.checkpoint.checkpoint import find_last, read_payload, write_payload
from transformer.checkpoint.run_directory import find_checkpoint, is_exported
from transformer.common.errors import InputError


def test_find_a_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    file = run / "checkpoints" / "best.ckpt"
    file.parent.mkdir(parents=True)
    file.touch()
    last = file.with_name("last.ckpt")
    assert find_checkpoint(file) == find_checkpoint(run) == file
    last.touch()
    assert find_checkpoint(run) == file
    assert find_checkpoint(run, "last") == last
    tuned = file.with_name("tuned.ckpt")
    tuned.touch()
    assert find_checkpoint(run) == tuned
    assert find_checkpoint(run, "best") == file
    # Training goes on from what it wrote itself.
    assert find_checkpoint(run, "last") == last
    tuned.unlink()
    file.unlink()
    assert find_checkpoint(run) == last


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "nowhere does not exist; give a run directory"),
        (".", "holds no checkpoints folder; give a run directory"),
        ("export", "is an export for CTranslate2; translate with engine=ct"),
        ("x" * 300, "x cannot be read: File name too long"),
    ],
)
def test_find_no_checkpoint(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "model.bin").touch()
    with pytest.raises(InputError, match=message):
        find_checkpoint(tmp_path / name)
    assert not is_exported(tmp_path / name)


@pytest.mark.parametrize("name", ["nowhere.ckpt", "."])
def test_no_file_at_all(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"cannot be read: (No such file|Is a directory)"):
        read_payload(tmp_path / name)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EIO, "Input/output error"), "cannot be read: Input/output error"),
        (PermissionError(errno.EACCES, "Permission denied"), "cannot be read: Permission denied"),
        (MemoryError(), "cannot be read: there is not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "not enough memory"),
    ],
)
def test_an_unreadable_file_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    last = tmp_path / "checkpoints" / "last.ckpt"
    for step in (1, 2):
        write_payload(tiny_payload(global_step=step), last)
    whole = torch.load

    def fails(file: Any, **how: Any) -> Any:
        if Path(file).resolve() == last:
            raise error
        return whole(file, **how)

    monkeypatch.setattr("torch.load", fails)
    with pytest.raises(InputError, match=rf"last\.ckpt .*{says}"):
        find_last(tmp_path)


def test_a_damaged_last_file_gives_way_to_the_one_before(tmp_path: Path) -> None:
    last = tmp_path / "checkpoints" / "last.ckpt"
    before = last.with_name("previous.ckpt")
    for step in (1, 2):
        payload = tiny_payload(global_step=step)
        write_payload(payload, last)
    assert (find_last(tmp_path)[0], find_last(tmp_path)[1]["global_step"]) == (last, 2)
    whole = last.read_bytes()
    weight = payload["state_dict"]["model.projection.weight"].numpy().tobytes()
    last.write_bytes(whole.replace(weight, bytes([weight[0] ^ 1]) + weight[1:]))
    assert find_last(tmp_path)[0] == before
    # Settings are read without the weights.
    assert find_last(tmp_path, tensors=False)[0] == last
    last.write_bytes(whole[:-50])
    assert (find_last(tmp_path)[0], find_last(tmp_path)[1]["global_step"]) == (before, 1)
    # A file that is named is meant.
    with pytest.raises(InputError, match=r"last\.ckpt cannot be read as a checkpoint"):
        find_last(last)
    last.unlink()  # between its two renamings a process was killed
    assert find_last(tmp_path)[0] == before
    before.write_bytes(b"")
    with pytest.raises(InputError, match=r"previous\.ckpt cannot be read as a checkpoint"):
        find_last(tmp_path)
    last.write_bytes(b"")
    both = r"last\.ckpt cannot be read as a checkpoint.*previous\.ckpt cannot be read"
    with pytest.raises(InputError, match=both):
        find_last(tmp_path)
    best = last.with_name("best.ckpt")
    best.touch()
    with pytest.raises(InputError, match=both + f".*; resume with checkpoint={best} from the best"):
        find_last(tmp_path)


def test_messages_propose_what_to_give(tmp_path: Path) -> None:
    def run(name: str) -> Path:
        file = tmp_path / "runs" / name / "checkpoints" / "best.ckpt"
        file.parent.mkdir(parents=True)
        file.touch()
        return file.parent.parent

    run("files/2026-11-20")
    newest = run("files/2026-11-21")
    os.utime(newest / "checkpoints", (2**31, 2**31))
    for folder in ("runs", "runs/files"):
        with pytest.raises(
            InputError, match=f"folder of runs, and no run; the newest in it is {newest}$"
        ):
            find_checkpoint(tmp_path / folder)
    with pytest.raises(
        InputError, match=r"2026-11-22 does not exist \(did you mean .*/2026-11-2[01]"
    ):
        find_checkpoint(tmp_path / "runs/files/2026-11-22")
    with pytest.raises(InputError, match=r"other does not exist; give a run directory"):
        find_checkpoint(tmp_path / "runs/files/other")
    (tmp_path / "checkpoints").mkdir()
    own = tmp_path / "checkpoints" / "checkpoints" / "best.ckpt"
    own.parent.mkdir()
    own.touch()
    assert find_checkpoint(tmp_path / "checkpoints") == own
    with pytest.raises(InputError, match=f"is a folder of checkpoints; give its run, {newest}, or"):
        find_checkpoint(newest / "checkpoints")
    # Training goes on from the best only where that is named.
    with pytest.raises(InputError, match=r"no last.ckpt or previous.ckpt; give .*/best\.ckpt$"):
        find_last(newest)
    for file in (newest / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(InputError, match="holds no checkpoint: its run was stopped before it"):
        find_checkpoint(newest)


def test_the_home_folder_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.ckpt").touch()
    assert find_checkpoint(Path("~/a.ckpt")) == tmp_path / "a.ckpt"
    with pytest.raises(InputError, match="checkpoint=~nobody-at-all/run does not exist"):
        find_checkpoint(Path("~nobody-at-all/run"))
