"""A checkpoint of several files is the one file that it would have been."""

import errno
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_payload
from transformer.checkpoint.archive import SHARDS, write_archive
from transformer.checkpoint.checkpoint import read_payload, write_payload
from transformer.checkpoint.sharded import delete_unnamed, shard_names, split
from transformer.common.errors import InputError

RANKS = 3


class Shared:
    """A tensor of which each rank has some rows."""

    def __init__(self, whole: Tensor, rank: int) -> None:
        rows = -(-len(whole) // RANKS)
        self.part = whole[rank * rows : (rank + 1) * rows]


def payload() -> dict[str, Any]:
    tied = torch.randn(5, 2)
    whole = tiny_payload(
        optimizer_states=[{"state": {0: {"step": 3.0, "exp_avg": torch.randn(5, 2)}}}]
    )
    whole["state_dict"] |= {"a": tied, "b": tied, "short": torch.randn(2)}
    return whole


def part_of(value: Any) -> Tensor | None:
    return value.part if isinstance(value, Shared) else None


def shared(node: Any, rank: int, known: dict[int, Shared]) -> Any:
    if isinstance(node, Tensor):
        return known.setdefault(id(node), Shared(node, rank))
    if isinstance(node, dict):
        return {key: shared(value, rank, known) for key, value in node.items()}
    return [shared(v, rank, known) for v in node] if isinstance(node, list) else node


def write(whole: dict[str, Any], folder: Path, save: str = "x") -> Path:
    names = [f"last-{save}-{rank}of{RANKS}.shard" for rank in range(RANKS)]
    for rank, name in enumerate(names):
        index, parts = split(shared(whole, rank, {}), part_of)
        write_payload(parts, folder / name)
    write_payload(index | {SHARDS: names}, folder / "last.ckpt")
    return folder / "last.ckpt"


def test_they_are_read_as_one(tmp_path: Path) -> None:
    whole = payload()
    read = read_payload(write(whole, tmp_path))
    assert read.keys() == whole.keys()
    for name, tensor in whole["state_dict"].items():
        assert torch.equal(read["state_dict"][name], tensor)
    state, expected = (each["optimizer_states"][0]["state"][0] for each in (read, whole))
    assert state["step"] == 3.0
    assert torch.equal(state["exp_avg"], expected["exp_avg"])
    # Tied weights are one tensor again, and a file of them as small.
    assert read["state_dict"]["a"] is read["state_dict"]["b"]


def test_shards_that_no_index_names_are_deleted(tmp_path: Path) -> None:
    whole = payload()
    for save in ("older", "old", "new"):
        file = write(whole, tmp_path, save)
    before = tmp_path / "previous.ckpt"
    delete_unnamed(tmp_path)
    named = {*shard_names(file), *shard_names(before)}
    assert {path.name for path in tmp_path.glob("*.shard")} == named
    assert len(named) == 2 * RANKS
    for each in (file, before):
        write_archive(read_payload(each), each)
    delete_unnamed(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.ckpt", "previous.ckpt"]
    assert torch.equal(read_payload(file)["state_dict"]["a"], whole["state_dict"]["a"])


@pytest.mark.parametrize("hidden", [False, True])
def test_an_unreadable_index_deletes_nothing(
    tmp_path: Path, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: Any, **settings: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def hiding(*arguments: Any, **settings: Any) -> None:
        raise RuntimeError("unable to mmap")

    file = write(payload(), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", hiding if hidden else failing)
        patch.setattr(zipfile, "ZipFile", failing)
        delete_unnamed(tmp_path)
        with pytest.raises(InputError, match=r"last\.ckpt cannot be read: .*Input/output error"):
            shard_names(file)
    assert len(list(tmp_path.glob("*.shard"))) == RANKS
    read_payload(file)


def test_a_damaged_index_names_nothing(tmp_path: Path) -> None:
    file = write(payload(), tmp_path)
    file.write_bytes(file.read_bytes()[:-40])
    assert shard_names(file) == []


@pytest.mark.parametrize("fault", ["missing", "damaged", "elsewhere", "malicious"])
def test_what_is_wrong_with_a_shard_is_said(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "run"
    file = write(payload(), folder)
    shard = folder / shard_names(file)[1]
    if fault == "missing":
        shard.unlink()
    elif fault == "damaged":
        shard.write_bytes(shard.read_bytes()[:-40])
    elif fault == "elsewhere":
        index = torch.load(file, weights_only=True)
        shard.rename(tmp_path / "x.shard")
        write_payload(index | {SHARDS: ["../x.shard"] * RANKS}, file)
    else:
        torch.save([print], shard)
    with pytest.raises(InputError, match="shard"):
        read_payload(file)
