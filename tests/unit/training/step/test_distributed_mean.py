"""Means over the predictions of several processes are those of one process."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from transformer.training.step.outcome import Means

BATCHES = [(8.25, 3), (1.5, 1), (40.125, 7), (2.0, 2), (0.75, 1)]


def add(means: Means, batches: list[tuple[float, int]]) -> None:
    for summed, number in batches:
        means.add("val/loss", torch.tensor(summed), number)


def test_each_prediction_counts_once() -> None:
    means = Means()
    add(means, BATCHES)
    assert means.over_all_ranks() == {"val/loss": pytest.approx(52.625 / 14, abs=1e-12)}
    assert means.over_all_ranks() == {}


def _rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=3)
    means = Means()
    # An odd number in all, unequal shares, and none for the last.
    add(means, (BATCHES[0::2], BATCHES[1::2], [])[rank])
    Path(folder, str(rank)).write_text(repr(means.over_all_ranks()))
    # Who ends first takes the others' connections along.
    dist.barrier()
    dist.destroy_process_group()


def test_three_processes_with_unequal_shares_find_the_same(tmp_path: Path) -> None:
    mp.spawn(_rank, (str(tmp_path),), nprocs=3)
    alone = Means()
    add(alone, BATCHES)
    expected: Any = alone.over_all_ranks()
    for rank in range(3):
        assert eval((tmp_path / str(rank)).read_text()) == pytest.approx(expected, abs=1e-12)
