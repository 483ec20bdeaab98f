"""How long the matrix products of an update take alone: the least time of an update on a CPU.

The products are noted while an update computes, forward and backward: projections, attention, the
output projection. Then factors of the same dtype, shape and strides are multiplied, and nothing
else. It does not know what is trained.
"""

import time
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}

Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""Dtype, shape and strides."""


class Products(TorchDispatchMode):
    """Notes both factors of every matrix product that is computed within it."""

    def __init__(self) -> None:
        super().__init__()
        self.factors: list[tuple[Layout, Layout]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Note and run."""
        if str(function.overloadpacket).removeprefix("aten.") in PRODUCTS:
            *_, left, right = (layout(factor) for factor in args if isinstance(factor, Tensor))
            self.factors.append((left, right))
        return function(*args, **(kwargs or {}))

    def seconds(self) -> float:
        """Time of all of them, one after the other; the first round is not counted."""
        made = {one: random_factor(*one) for pair in self.factors for one in pair}
        for _ in range(2):
            began = clock()
            for left, right in self.factors:
                torch.matmul(made[left], made[right])
        return clock() - began


def clock() -> float:
    """Seconds; of one thread only those that it computes, which other processes change little."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def layout(factor: Tensor) -> Layout:
    """What decides how fast a factor is multiplied."""
    return factor.dtype, tuple(factor.shape), factor.stride()


def random_factor(dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """Normal numbers in this layout."""
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return torch.randn(last + 1).to(dtype).as_strided(shape, strides)
