"""Outcome of an update, read on the host after later work has been enqueued on the device.

It does not judge: divergence.py does.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from transformer.common.processes import SIGNALS
from transformer.training.optimization.gradient_accumulation import Totals


class Outcome:
    """Numbers of an update, over all ranks.

    One copy to the host starts at once. Reading a number waits for that copy, but on CUDA not for
    what has been enqueued since.

    Args:
        good: 0-d bool: whether the update was applied.
        norm: 0-d: norm of the gradient before clipping.
        totals: Sums over the micro-batches of all ranks.

    Attributes:
        lr: Learning rate.
        number: Index of the update in the run, from 1.
    """

    def __init__(self, good: Tensor, norm: Tensor, totals: Totals, lr: float, number: int) -> None:
        self.lr, self.number = lr, number
        self._totals = totals
        numbers = [good, norm, *totals.sums.values()]
        if isinstance(totals.tokens, Tensor) and totals.signals is not None:
            numbers += [totals.tokens, totals.signals]
        self._sizes = [number.numel() for number in numbers]
        self._copy = torch.cat([number.detach().flatten() for number in numbers])
        self._copied: torch.cuda.Event | None = None
        if self._copy.is_cuda:
            self._copy = self._copy.to("cpu", non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    @cached_property
    def _numbers(self) -> list[Tensor]:
        """The numbers on the host: the only read of the device in an update."""
        if self._copied is not None:
            self._copied.synchronize()
        return list(self._copy.cpu().split(self._sizes))

    @property
    def good(self) -> bool:
        """Whether the update was applied."""
        return bool(self._numbers[0])

    @property
    def norm(self) -> float:
        """Norm of the gradient."""
        return float(self._numbers[1])

    @property
    def tokens(self) -> int:
        """Number of predictions."""
        tokens = self._totals.tokens
        return int(self._numbers[-2]) if isinstance(tokens, Tensor) else tokens

    @property
    def loss(self) -> float:
        """Per prediction, in nats."""
        summed = self.sums["loss"]
        assert isinstance(summed, float)
        return summed / self.tokens

    @property
    def signal(self) -> int | None:
        """The last in the list of the signals that any of several ranks has received."""
        if self._totals.signals is None:
            return None
        counted = zip(SIGNALS, self._numbers[-1].tolist(), strict=True)
        received = [signal for signal, ranks in counted if ranks]
        return received[-1] if received else None

    @cached_property
    def sums(self) -> dict[str, Any]:
        """The sums to log, by name: plain numbers and lists."""
        named = zip(self._totals.sums.items(), self._numbers[2:], strict=False)
        return {name: number.view_as(value).tolist() for (name, value), number in named}
