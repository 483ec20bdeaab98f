"""Ranks as forked processes, and checkpoints that they write."""

import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from lightning_fabric.plugins.environments import LightningEnvironment
from torch import Tensor
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils._pytree import tree_map

from tests.helpers.model.models import tiny_payload
from tests.helpers.runs.processes import FORKS, exit_code
from transformer.checkpoint.checkpoint import write_payload
from transformer.checkpoint.sharded import SUFFIX
from transformer.training.checkpointing import AtomicCheckpointIO
from transformer.training.distributed.fsdp import ShardedStrategy

RANKS = 3


def in_ranks(count: int, work: Callable[..., None], *arguments: Any) -> list[int]:
    """Run a function of the rank in processes with a group; returns their exit codes."""
    with TemporaryDirectory() as folder:
        ranks = [
            FORKS.Process(target=_rank, args=(rank, count, f"{folder}/store", work, arguments))
            for rank in range(count)
        ]
        for rank in ranks:
            rank.start()
        return [exit_code(rank, 60) for rank in ranks]


def _rank(
    rank: int, count: int, store: str, work: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    work(rank, *arguments)
    dist.destroy_process_group()


def rank_strategy(rank: int) -> ShardedStrategy:
    """The strategy of a rank without a trainer, for what it does with checkpoints."""
    environment = LightningEnvironment()
    environment.set_global_rank(rank)
    strategy = ShardedStrategy(dist.get_world_size())
    strategy.cluster_environment = environment
    strategy.checkpoint_io = AtomicCheckpointIO()
    strategy._writers = dist.new_group(backend="gloo")
    return strategy


def distributed(payload: Any) -> Any:
    """Share out the float tensors of a payload; tied ones stay tied."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    known: dict[int, DTensor] = {}

    def share(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.dim():
            return value
        if value.data_ptr() not in known:
            known[value.data_ptr()] = distribute_tensor(value, mesh, [Shard(0)])
        return known[value.data_ptr()].detach()

    return tree_map(share, payload)


def payload(seed: int = 0) -> dict[str, Any]:
    """A whole checkpoint: ``short`` has fewer rows than there are ranks; ``a`` is tied to ``b``."""
    generator = torch.Generator().manual_seed(seed)
    tied, moment = (torch.randn(5, 2, generator=generator) for _ in range(2))
    moments = {"step": torch.tensor(3.0), "exp_avg": moment, "exp_avg_sq": torch.ones(1)}
    whole = tiny_payload(optimizer_states=[{"state": {0: moments}}])
    whole["state_dict"] |= {"a": tied, "b": tied, "short": torch.randn(2, generator=generator)}
    return whole


def write(folder: Path, seed: int = 0) -> Path:
    """``last.ckpt`` with ``payload(seed)``, written by three ranks."""
    [source] = Path(_written(seed).name).glob(f"*{SUFFIX}")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, folder / source.name, dirs_exist_ok=True)
    index = torch.load(source.with_name("last.ckpt"), weights_only=True)
    write_payload(index, folder / "last.ckpt")
    return folder / "last.ckpt"


@cache
def _written(seed: int) -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    assert in_ranks(RANKS, _save, seed, Path(folder.name)) == [0] * RANKS
    return folder


def _save(rank: int, seed: int, folder: Path) -> None:
    strategy = rank_strategy(rank)
    strategy.save_checkpoint(distributed(payload(seed)), folder / "last.ckpt")
    strategy._io.wait()
    assert strategy._io.error is None
