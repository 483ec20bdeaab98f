"""A recorder of graphs for a CPU, whose replays compute what was recorded."""

from collections.abc import Callable
from typing import TypeVar

from transformer.common.cuda_graphs import Recorder

T = TypeVar("T")


class PlainRecorder(Recorder):
    """Calls in place of replays; ``error`` is what the next recording raises."""

    def __init__(self) -> None:
        self.warmed = 0
        self.recorded = 0
        self.error: RuntimeError | None = None

    def warm_up(self, call: Callable[[], T]) -> T:
        self.warmed += 1
        return call()

    def record(self, call: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """The result is computed by the replays alone, as that of a graph."""
        if self.error is not None:
            raise self.error
        self.recorded += 1
        nothing: T = None  # type: ignore[assignment]

        def replay() -> None:
            call()

        return nothing, replay
