"""What becomes of a checkpoint of several ranks where one cannot write, without other ranks."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.model.checkpoint.test_sharded import payload, write
from transformer.model.checkpoint.archive import SHARDS
from transformer.model.checkpoint.checkpoint import read_payload
from transformer.training.checkpointing.checkpoint_io import AtomicCheckpointIO
from transformer.training.distributed import fsdp
from transformer.training.distributed.fsdp import ShardedStrategy


class Alone(ShardedStrategy):
    """One of two ranks, with nobody to speak to; the other may have no place for its part."""

    def __init__(self, rank: int, other_fails: bool = False) -> None:
        super().__init__(checkpoint_io=AtomicCheckpointIO())
        self.rank, self.other_fails = rank, other_fails

    @property
    def global_rank(self) -> int:
        return self.rank

    @property
    def is_global_zero(self) -> bool:
        return self.rank == 0

    @property
    def world_size(self) -> int:
        return 2

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return obj

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        return decision or self.other_fails

    @property
    def error(self) -> str:
        assert isinstance(self.checkpoint_io, AtomicCheckpointIO)
        return str(self.checkpoint_io.error)


class OnDevice:
    """A tensor of which this rank has rows, on a device from which each copy is another."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def to_local(self) -> "OnDevice":
        return self

    detach = to_local

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rows, name)

    def cpu(self) -> torch.Tensor:
        return self.rows.clone()


def test_weights_of_several_names_are_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsdp, "DTensor", OnDevice)
    part = fsdp._Parts()
    tied, other = torch.randn(4), torch.randn(4)
    copy = part(OnDevice(tied))
    assert copy is part(OnDevice(tied))
    assert copy is not None and torch.equal(copy, tied)
    assert part(OnDevice(other)) is not copy
    assert part(3) is None


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("fails", ["none", "this", "other"])
def test_a_full_disk_of_any_rank_leaves_the_old_checkpoint(
    tmp_path: Path, rank: int, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = write(payload(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    strategy = Alone(rank, fails == "other")
    with monkeypatch.context() as patch:
        if fails == "this":
            patch.setattr(os, "fsync", full)
        strategy.save_checkpoint({"a": 1}, file)
    if fails == "none":
        assert strategy.error == "None"
        assert SHARDS in torch.load(file, weights_only=True)
        assert (tmp_path / "previous.ckpt").exists() == (rank == 0)
        return
    assert ("No space left" if fails == "this" else "another rank could not") in strategy.error
    if rank == 0:  # which deletes what both have written
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert read_payload(file)
