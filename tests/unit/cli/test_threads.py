"""How many threads a search has."""

import pytest
import torch
from torch import nn

from transformer.cli import threads


def test_a_small_model_searches_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_DEFAULT_THREADS", 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(threads, "sleep_when_crowded", lambda: None)
    small, large = nn.Linear(128, 1000), nn.Linear(512, 2048)
    threads.set_search_threads(small.parameters())
    assert torch.get_num_threads() == 1
    threads.set_search_threads([*small.parameters(), *large.parameters()])
    assert torch.get_num_threads() == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    threads.set_search_threads(small.parameters())
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
