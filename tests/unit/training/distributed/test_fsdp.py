"""What becomes of a checkpoint of several ranks where one cannot write, without other ranks."""

import errno
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pytorch_lightning.plugins import MixedPrecision
from torch import distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.updates import translation_module
from tests.unit.checkpoint.test_sharded import payload, write
from transformer.checkpoint.archive import SHARDS
from transformer.checkpoint.checkpoint import read_payload
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
    part = partial(fsdp.local_part, copies={})
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


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded(device: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tiny translator whose model is sharded as on a device, for training in mixed precision.

    Its norm takes weights in bfloat16 on a CPU, too.
    """
    policy = fsdp.layer_policy("bf16-mixed", torch.device(device))
    monkeypatch.setattr(fsdp, "layer_policy", lambda *_: policy)
    strategy = ShardedStrategy(parallel_devices=[torch.device("cpu")])
    monkeypatch.setattr(ShardedStrategy, "world_size", 1)
    monkeypatch.setattr(ShardedStrategy, "root_device", torch.device("cpu"))
    strategy._lightning_module = module = translation_module(tiny_transformer(norm="rms"))
    strategy.precision_plugin = MixedPrecision("bf16-mixed", "cpu")
    strategy.configure_ddp()
    return module


@pytest.mark.parametrize(("device", "gathered"), [("cuda", torch.bfloat16), ("cpu", torch.float32)])
def test_a_layer_is_gathered_as_its_products_need(
    device: str, gathered: torch.dtype, group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, plain = sharded(device, monkeypatch), tiny_transformer(norm="rms")
    layer, tokens, seen = module.model.encoder.layers[0], torch.randint(4, 24, (3, 5)), []
    assert isinstance(layer, FSDPModule)
    layer.feed_forward.register_forward_hook(
        lambda module, *_: seen.extend(p.dtype for p in module.parameters())
    )
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        hidden, expected = module.model(tokens, tokens), plain(tokens, tokens)
    assert set(seen[:-1]) == {gathered}
    assert seen[-1] == hidden.dtype == torch.float32
    upstream = torch.randn(hidden.shape)
    hidden.backward(upstream)
    expected.backward(upstream)
    with torch.profiler.profile() as profile:
        norm = module.normalize(1, Mock(spec=Optimizer))
    assert "aten::_foreach_norm" in {event.key for event in profile.key_averages()}
    gradients = [weight.grad for weight in plain.parameters()]
    assert norm == pytest.approx(torch.nn.utils.get_total_norm(gradients).item(), rel=0.02)
    for weight, same in zip(module.model.parameters(), gradients, strict=True):
        assert weight.grad.dtype == torch.float32
        assert (weight.grad.full_tensor() - same).norm() < 0.02 * norm
