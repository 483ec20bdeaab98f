"""Sharded weights: how they are gathered, saved and loaded by several ranks."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.sharded import (
    distributed,
    in_ranks,
    payload,
    rank_strategy,
    write,
)
from tests.helpers.training.updates import translation_module
from transformer.checkpoint.checkpoint import read_payload
from transformer.training.distributed import fsdp


def save_on_full_disk(rank: int, file: Path, full: int, index: bool) -> None:
    """Save where one rank cannot write its part, or rank 0 the index."""

    def failing(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if rank == full and index:
        fsdp.sync = failing
    elif rank == full:
        os.fsync = failing
    strategy = rank_strategy(rank)
    strategy.save_checkpoint(distributed(payload(1)), file)
    strategy._io.wait()
    told = strategy.broadcast(str(strategy._io.error))
    where = "" if index else f" on rank {full}"
    assert f"{file} cannot be written (No space left on device{where}); free some" in told
    assert index or str(strategy._io.error) == told


@pytest.mark.thorough
@pytest.mark.parametrize(("full", "index"), [(1, False), (0, True)])
def test_a_full_disk_of_any_rank_leaves_the_old_checkpoint(
    tmp_path: Path, full: int, index: bool
) -> None:
    file = write(tmp_path)
    before = {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")}
    assert in_ranks(2, save_on_full_disk, file, full, index) == [0, 0]
    assert {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")} == before
    assert torch.equal(read_payload(file)["state_dict"]["a"], payload()["state_dict"]["a"])


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(("device", "gathered"), [("cuda", torch.bfloat16), ("cpu", torch.float32)])
def test_a_layer_is_gathered_as_its_products_need(
    device: str, gathered: torch.dtype, group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = fsdp.layer_policy("bf16-mixed", device)
    monkeypatch.setattr(fsdp, "layer_policy", lambda *_: policy)
    # Its norm takes weights in bfloat16 on a CPU, too.
    plain = tiny_transformer(norm="rms")
    module: Any = translation_module(tiny_transformer(norm="rms"))
    fsdp.shard(module.model, init_device_mesh("cpu", (1,)), "bf16-mixed")
    layer = module.model.encoder.layers[0]
    tokens = torch.randint(4, 24, (3, 5))
    seen: list[torch.dtype] = []
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
    norm = module.normalize(1.0, Mock(spec=Optimizer))
    gradients = [weight.grad for weight in plain.parameters()]
    assert norm == pytest.approx(torch.nn.utils.get_total_norm(gradients).item(), rel=0.02)
    for weight, same in zip(module.model.parameters(), gradients, strict=True):
        assert weight.grad.dtype == torch.float32
        assert (weight.grad.full_tensor() - same).norm() < 0.02 * norm
