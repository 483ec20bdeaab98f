"""Means over all predictions of a validation, as one process would compute them.

Lightning takes the mean of the ranks' means, or rounds a number of predictions down to a multiple
of the ranks. It does not know what is averaged.
"""

import math

import torch.distributed as dist
from torch import Tensor


class Means:
    """Sums and numbers, of each name."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[float, int]] = {}

    def add(self, name: str, summed: Tensor, number: int) -> None:
        """Count some predictions.

        Args:
            name: Of the mean.
            summed: Over these predictions.
            number: Of them.
        """
        before = self._counted.get(name, (0.0, 0))
        self._counted[name] = (before[0] + float(summed.detach()), before[1] + number)

    def over_all_ranks(self) -> dict[str, float]:
        """The means, alike on all ranks, and none of what no rank has counted; begins anew."""
        shares = [self._counted]
        if dist.is_initialized():
            shares *= dist.get_world_size()
            dist.all_gather_object(shares, self._counted)
        self._counted = {}
        names = {name: None for share in shares for name in share}
        counted = {name: [s[name] for s in shares if name in s] for name in names}
        return {
            name: math.fsum(summed for summed, _ in each) / sum(number for _, number in each)
            for name, each in counted.items()
        }
