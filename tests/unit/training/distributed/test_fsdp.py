"""Sharded weights: how they are gathered, saved and loaded by several ranks."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
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
from transformer.checkpoint import sharded as parts
from transformer.checkpoint.archive import SHARDS
from transformer.checkpoint.checkpoint import read_payload
from transformer.checkpoint.sharded import SUFFIX
from transformer.training.checkpointing import optimizer_state
from transformer.training.distributed import fsdp


def save_snapshot(rank: int, file: Path) -> None:
    """Change the weights while they are being written."""
    changed = threading.Event()
    write_data = dcp.FileSystemWriter.write_data

    def late(*arguments: Any) -> Any:
        assert changed.wait(30)
        return write_data(*arguments)

    dcp.FileSystemWriter.write_data = late
    strategy = rank_strategy(rank)
    tree = distributed(payload())
    strategy.save_checkpoint(tree, file)
    for tensor in tree["state_dict"].values():
        tensor.to_local().zero_()
    tree["optimizer_states"][0]["state"][0]["step"].zero_()
    assert not file.exists() and not strategy._io.pending.done()
    changed.set()
    strategy._io.wait()
    assert strategy._io.error is None


@pytest.mark.thorough
def test_training_goes_on_while_its_weights_are_written(tmp_path: Path) -> None:
    file = tmp_path / "last.ckpt"
    assert in_ranks(2, save_snapshot, file) == [0, 0]
    read = read_payload(file)
    whole = payload()
    for name, tensor in whole["state_dict"].items():
        assert torch.equal(read["state_dict"][name], tensor)
    assert read["optimizer_states"][0]["state"][0]["step"] == 3


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


def killed_before_the_index(rank: int, file: Path) -> None:
    fsdp.write_payload = lambda *_: os._exit(9)
    strategy = rank_strategy(rank)
    strategy.save_checkpoint(distributed(payload(1)), file)
    strategy._io.wait()


def save_again(rank: int, file: Path) -> None:
    strategy = rank_strategy(rank)
    strategy.save_checkpoint(distributed(payload(2)), file)
    strategy.checkpoint_io.teardown()


@pytest.mark.thorough
def test_a_rank_killed_before_the_index_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    file = write(tmp_path)
    assert in_ranks(2, killed_before_the_index, file)[0] == 9
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == 2
    assert torch.equal(read_payload(file)["state_dict"]["a"], payload()["state_dict"]["a"])
    # The next save deletes the parts without an index.
    assert in_ranks(2, save_again, file) == [0, 0]
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == 2  # of last.ckpt and previous.ckpt
    assert torch.equal(read_payload(file)["state_dict"]["a"], payload(2)["state_dict"]["a"])


class Fitted:
    """A tiny translator on this rank after some updates, with what a trainer does about it."""

    def __init__(self, rank: int, updates: int) -> None:
        torch.manual_seed(rank)  # the weights are those of rank 0
        model = tiny_transformer(seed=1 if rank == 0 else 2)
        self.strategy = rank_strategy(rank)
        self.strategy._lightning_module = module = translation_module(model)
        fsdp.shard(module.model, init_device_mesh("cpu", (dist.get_world_size(),)), "32-true")
        self.optimizer = torch.optim.Adam(module.model.parameters(), lr=0.1, fused=True)
        self.strategy.optimizers = [self.optimizer]
        tokens = torch.arange(4, 24).view(4, 5)
        for _ in range(updates):
            module.model(tokens, tokens).square().sum().backward()
            for weight in module.model.parameters():
                assert isinstance(weight.grad, DTensor)
                weight.grad.mul_(1 / dist.get_world_size())  # all ranks have the same text
            self.optimizer.step()
            self.optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        portable = payload()
        weights = self.strategy.lightning_module_state_dict()
        moments = self.strategy.optimizer_state(self.optimizer)
        return portable | {"state_dict": weights, "optimizer_states": [moments]}

    def resume(self, file: Path) -> None:
        loaded = read_payload(file, parts=False)
        loaded["optimizer_states"] = [
            optimizer_state(loaded["optimizer_states"], self.optimizer, copies=False)
        ]
        self.strategy.load_model_state_dict(loaded)
        self.strategy.load_optimizer_state_dict(loaded)


def save_fitted(rank: int, file: Path) -> None:
    fitted = Fitted(rank, updates=2)
    fitted.strategy.save_checkpoint(fitted.state(), file)
    fitted.strategy.checkpoint_io.teardown()
    assert fitted.strategy._io.error is None


def resume_fitted(rank: int, file: Path, whole: Path, share: float) -> None:
    """Go on from a checkpoint; a rank reads the parts with its rows, ``share`` of all bytes."""
    read: list[int] = []
    read_data = parts._Reader.read_data

    def counting(self: Any, plan: Any, planner: Any) -> Any:
        read.extend(self.metadata.storage_data[item.storage_index].length for item in plan.items)
        return read_data(self, plan, planner)

    parts._Reader.read_data = counting
    fitted = Fitted(rank, updates=0)
    fitted.resume(file)
    size = sum(part.stat().st_size for part in file.parent.rglob("*.distcp"))
    if file != whole:
        assert 0 < sum(read) < share * size
    expected = torch.load(whole, weights_only=True)
    resumed = fitted.state()
    for name, tensor in expected["state_dict"].items():
        assert torch.equal(resumed["state_dict"][name].full_tensor(), tensor)
    states = (each["optimizer_states"][0]["state"] for each in (resumed, expected))
    for ours, theirs in zip(*(s.values() for s in states), strict=True):
        assert torch.equal(ours["exp_avg_sq"].full_tensor(), theirs["exp_avg_sq"])
        assert ours["step"] == theirs["step"] == 2


@pytest.mark.thorough
@pytest.mark.parametrize(("ranks", "share"), [(1, 1.01), (3, 1.01), (4, 0.6)])
def test_another_number_of_ranks_goes_on_and_each_reads_its_part(
    tmp_path: Path, ranks: int, share: float
) -> None:
    file = tmp_path / "last.ckpt"
    joined = tmp_path / "joined.ckpt"
    assert in_ranks(2, save_fitted, file) == [0, 0]
    assert SHARDS in torch.load(file, weights_only=True)
    torch.save(read_payload(file), joined)
    assert in_ranks(ranks, resume_fitted, file, joined, share) == [0] * ranks
    # One file is shared out, too.
    assert in_ranks(ranks, resume_fitted, joined, joined, share) == [0] * ranks


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
