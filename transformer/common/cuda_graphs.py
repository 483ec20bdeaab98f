"""Records the kernels of a call as a CUDA graph, which the host starts by one call.

It knows no model. A test has a recorder that computes on a CPU.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

import torch

T = TypeVar("T")


class Recorder(ABC):
    """Records what a call computes on a device."""

    @abstractmethod
    def warm_up(self, call: Callable[[], T]) -> T:
        """Compute it once, so that all that kernels allocate at first is there."""

    @abstractmethod
    def record(self, call: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """Record it without computing it; the result is computed by each call of the second."""


class GpuRecorder(Recorder):
    """torch's graphs, which share their memory, because none runs while another does."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool: Any = None  # of torch, whose type is private
        self._recorded: WeakSet[torch.cuda.CUDAGraph] = WeakSet()

    def warm_up(self, call: Callable[[], T]) -> T:
        """Compute it on the stream of the recording."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = call()
        current.wait_stream(self._stream)
        return result

    def record(self, call: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """Record it; raises RuntimeError if it waits for the device, or memory runs out."""
        graph = torch.cuda.CUDAGraph()
        if not self._recorded:
            # A pool whose graphs are all gone may not be used again.
            self._pool = torch.cuda.graph_pool_handle()
        # The weights that autocast has cast before would not be cast again in a replay.
        torch.clear_autocast_cache()
        try:
            with (
                # torch does not leave the stream of a recording that fails.
                torch.cuda.stream(torch.cuda.current_stream(self._device)),
                # Threads of the loader pin memory meanwhile, which "global" would not allow.
                torch.cuda.graph(
                    graph, self._pool, self._stream, capture_error_mode="thread_local"
                ),
            ):
                result = call()
        except RuntimeError:
            self._renew_generator()
            raise
        finally:
            torch.clear_autocast_cache()
        self._recorded.add(graph)
        return result, graph.replay

    def _renew_generator(self) -> None:
        """Give the default generator a new state: that of a failed recording draws nothing more."""
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        new = torch.Generator(self._device)
        new.manual_seed(generator.initial_seed())
        generator.graphsafe_set_state(new.graphsafe_get_state())


def failure(error: RuntimeError) -> str:
    """Why a recording failed, in one line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
