"""A checkpoint of several ranks is the one file that it would have been, and runs no code."""

import errno
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import checkpoint as dcp

from tests.helpers.training.sharded import RANKS, payload, write
from transformer.checkpoint.archive import SHARDS, write_archive
from transformer.checkpoint.checkpoint import read_payload, write_payload
from transformer.checkpoint.sharded import SUFFIX, delete_unnamed, part_folder_of
from transformer.common.errors import InputError


def parts_of(file: Path) -> Path:
    name = part_folder_of(file)
    assert name is not None
    return file.with_name(name)


def test_it_is_read_as_one_file(tmp_path: Path) -> None:
    file, whole = write(tmp_path), payload()
    assert len(list(parts_of(file).glob("*.distcp"))) == RANKS
    read = read_payload(file)
    assert read.keys() == whole.keys()
    for name, tensor in whole["state_dict"].items():
        assert torch.equal(read["state_dict"][name], tensor)
    state, expected = (each["optimizer_states"][0]["state"][0] for each in (read, whole))
    for name, tensor in expected.items():
        assert torch.equal(state[name], tensor)
    # Tied weights are one tensor again, and a file of them as small.
    assert read["state_dict"]["a"] is read["state_dict"]["b"]


def test_parts_that_no_index_names_are_deleted(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        file = write(tmp_path, seed)
    before = tmp_path / "previous.ckpt"
    delete_unnamed(tmp_path)
    assert {*tmp_path.glob(f"*{SUFFIX}")} == {parts_of(file), parts_of(before)}
    for each in (file, before):
        write_archive(read_payload(each), each)
    delete_unnamed(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.ckpt", "previous.ckpt"]
    assert torch.equal(read_payload(file)["state_dict"]["a"], payload(2)["state_dict"]["a"])


def test_an_unreadable_index_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: Any, **settings: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = write(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", failing)
        patch.setattr(zipfile, "ZipFile", failing)
        delete_unnamed(tmp_path)
        with pytest.raises(InputError, match=r"last\.ckpt cannot be read: .*Input/output error"):
            part_folder_of(file)
    assert parts_of(file).exists()
    read_payload(file)
    # A damaged index names nothing.
    file.write_bytes(file.read_bytes()[:-40])
    assert part_folder_of(file) is None


class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.made),)


def test_nothing_that_is_planted_runs(tmp_path: Path) -> None:
    file, made = write(tmp_path), tmp_path / "made"
    parts = parts_of(file)
    (parts / ".metadata").write_bytes(pickle.dumps(Planted(made)))
    assert read_payload(file).keys() == payload().keys()
    assert not made.exists()
    # torch's own reader runs it.
    with pytest.raises(AttributeError):
        dcp.FileSystemReader(parts).read_metadata()
    made.rmdir()
    for part in parts.glob("*.distcp"):
        size = part.stat().st_size
        torch.save(Planted(made), part)
        with part.open("ab") as planted:
            planted.truncate(size)
    with pytest.raises(InputError, match="cannot be read"):
        read_payload(file)
    assert not made.exists()


def edited(file: Path, **changes: Any) -> None:
    index = torch.load(file, weights_only=True)
    index[SHARDS] |= changes
    write_payload(index, file)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("missing", r"__1_0\.distcp, a part of a checkpoint, is missing"),
        ("cut", "do not fit their index"),
        ("flipped", r"cannot be read: .*__1_0\.distcp is damaged; use another"),
        ("elsewhere", "does not name a folder of parts beside it"),
        ("file elsewhere", "do not fit their index"),
        ("too large", "do not fit their index"),
        ("gap", "do not fit their index"),
        ("twice", "do not fit their index"),
    ],
)
def test_what_is_wrong_with_the_parts_is_said(tmp_path: Path, fault: str, says: str) -> None:
    file = write(tmp_path / "run")
    parts = parts_of(file)
    part = parts / "__1_0.distcp"
    table = torch.load(file, weights_only=True)[SHARDS]
    pieces = table["pieces"]
    if fault == "missing":
        part.unlink()
    elif fault == "cut":
        part.write_bytes(part.read_bytes()[:-40])
    elif fault == "flipped":
        data = part.read_bytes()
        rows = payload()["state_dict"]["a"][2:4].numpy().tobytes()
        assert rows in data
        part.write_bytes(data.replace(rows, rows[:-1] + bytes([rows[-1] ^ 1])))
    elif fault == "elsewhere":
        shutil.move(parts, tmp_path / "x.dcp")
        edited(file, folder="../x.dcp")
    elif fault == "file elsewhere":
        edited(file, files=["../x.distcp", *table["files"][1:]])
    elif fault == "too large":
        edited(file, tensors=[[n, t, [*s[:-1], 10**12]] for n, t, s in table["tensors"]])
    elif fault == "gap":
        edited(file, pieces=pieces[1:])
    else:
        edited(file, pieces=torch.cat([pieces, pieces]))
    with pytest.raises(InputError, match=says):
        read_payload(file)
