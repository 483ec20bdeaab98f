"""How a row is measured: sizes, the clock, the deadline, and what the GPU can do at best.

It knows neither models nor rows.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

Values = dict[str, Any]
"""What a row has found; the keys are columns of its table."""

MOST = 6
"""A row is timed for at most this many times ``Bench.seconds``."""
BLOCK = 20
"""Milliseconds: shorter calls are timed together, so that the host does not wait for each."""
TOKENS = 25_000
"""Of a batch, of each side."""
CHUNK = 32_768
"""Rows of logits, as in ``trainer=gpu``."""
SMALL = 100
"""A rehearsal divides sizes by it."""


class OutOfTime(Exception):
    """The deadline of the command is over."""


@dataclass
class Bench:
    """Where and how long rows are measured, and how large they are.

    Attributes:
        device: The GPU.
        folder: For rows, text, caches and runs.
        ends: When the time is over, by ``time.monotonic``.
        calls, seconds: A row is timed for at least so many calls and seconds.
        small: Sizes are divided by it; above 1 the models are tiny, too.
    """

    device: torch.device
    folder: Path
    ends: float = math.inf
    calls: int = 5
    seconds: float = 1.0
    small: int = 1
    _products: dict[torch.dtype, Values] = field(default_factory=dict)

    @classmethod
    def tiny(cls, folder: Path, ends: float = math.inf) -> "Bench":
        """All rows, small and on a CPU; a time is that of one call."""
        return cls(torch.device("cpu"), folder, ends, calls=1, seconds=0.0, small=SMALL)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    @property
    def vocabulary(self) -> int:
        """Subwords."""
        return self.of(32_000)

    def of(self, size: int) -> int:
        """The size here."""
        return max(2, size // self.small)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.ends - time.monotonic()

    def check(self) -> None:
        """Raise OutOfTime after the deadline."""
        if self.left <= 0:
            raise OutOfTime

    def time(self, call: Callable[[], object], seconds: float | None = None) -> Values:
        """Milliseconds of a call: the median, of how many calls, and their spread.

        Three calls warm up. Then it is timed for at least ``calls`` and ``seconds``, but no longer
        than ``MOST`` times as long or until the deadline. The spread is that between the fastest
        and the slowest, as a share of the median; ``first s`` are the seconds of the very first
        call, which may compile. OutOfTime if the deadline is over before there is a time.
        """
        self.check()
        seconds = self.seconds if seconds is None else seconds
        first = elapsed(self.device, call)
        one = min(elapsed(self.device, call) for _ in range(2))
        block = 1 if self.small > 1 else max(1, min(1000, round(BLOCK / one)))
        taken: list[float] = []
        enough = False
        while not enough:
            self.check()
            taken.append(elapsed(self.device, call, block))
            spent = sum(taken) * block / 1000
            enough = len(taken) >= self.calls and spent >= seconds
            enough = enough or spent >= MOST * seconds or self.left <= 0
        median = statistics.median(taken)
        return {
            "ms": median,
            "calls": len(taken) * block,
            "spread": (max(taken) - min(taken)) / median,
            "first s": first / 1000,
        }

    def products(self, dtype: torch.dtype) -> Values:
        """TFLOP/s of the product of two large square matrices of random numbers, measured once."""
        if dtype not in self._products:
            width = self.of(8192)
            shape: dict[str, Any] = {"size": (width, width), "device": self.device, "dtype": dtype}
            left, right = torch.randn(**shape), torch.randn(**shape)
            out = torch.empty_like(left)
            found = self.time(lambda: torch.mm(left, right, out=out))
            self._products[dtype] = {"TFLOP/s": 2 * width**3 / found["ms"] / 1e9, **found}
        return self._products[dtype]

    def peak(self) -> float:
        """GiB that were allocated on the GPU at most since the row began."""
        return torch.cuda.max_memory_allocated(self.device) / 2**30 if self.on_gpu else 0.0


def elapsed(device: torch.device, call: Callable[[], object], times: int = 1) -> float:
    """Milliseconds of a call that is made so many times, by CUDA events or by the host's clock."""
    watch = Stopwatch(device)
    for _ in range(times):
        call()
    return watch.stop() / times


class Stopwatch:
    """Milliseconds on a device from now on: by CUDA events, or by the clock of the host."""

    def __init__(self, device: torch.device) -> None:
        self.events: list[Any] = []
        if device.type == "cuda":
            self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self.events[0].record()
        self.began = time.perf_counter()

    def stop(self) -> float:
        """Wait for the device, and give the time."""
        if not self.events:
            return (time.perf_counter() - self.began) * 1000
        began, ended = self.events
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended))
