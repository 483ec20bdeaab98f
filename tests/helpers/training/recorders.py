"""A recorder of graphs for a CPU, whose replays compute what a graph would."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from transformer.common.cuda_graphs import Recorder

T = TypeVar("T")


class CpuRecorder(Recorder):
    """Computes a call in each replay, from what it reads then, into the same tensors."""

    def __init__(self) -> None:
        self.warmed = 0
        self.recorded = 0
        self.replayed = 0
        self.error: RuntimeError | None = None

    def warm_up(self, call: Callable[[], T]) -> T:
        self.warmed += 1
        return call()

    def record(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        if self.error is not None:
            raise self.error
        self.recorded += 1
        sums = {"loss": torch.zeros(())}

        def replay() -> None:
            self.replayed += 1
            _, computed = call()
            for name, value in computed.items():
                sums[name].copy_(value)

        return (0, sums), replay
