"""Means over the predictions of several processes are those of one process."""

import pytest
import torch
import torch.distributed as dist

from transformer.training.step.outcome import Means

BATCHES = [(8.25, 3), (1.5, 1), (40.125, 7), (2.0, 2), (0.75, 1)]
WHOLE = {"val/loss": pytest.approx(52.625 / 14, abs=1e-12)}


def means_of(batches: list[tuple[float, int]]) -> Means:
    means = Means()
    for summed, number in batches:
        means.add("val/loss", torch.tensor(summed), number)
    return means


def test_each_prediction_counts_once() -> None:
    means = means_of(BATCHES)
    assert means.over_all_ranks() == WHOLE
    assert means.over_all_ranks() == {}


def test_ranks_with_unequal_parts_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # An odd number in all, and none for the last rank.
    ranks = [means_of(part) for part in (BATCHES[0::2], BATCHES[1::2], [])]
    everything = [{"val/loss": (49.125, 11)}, {"val/loss": (3.5, 3)}, {}]

    def gather(gathered: list[object], own: object) -> None:
        assert own in everything and len(gathered) == 3
        gathered[:] = everything

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    monkeypatch.setattr(dist, "all_gather_object", gather)
    for means in ranks:
        assert means.over_all_ranks() == WHOLE
