"""Means over all predictions of a validation, as one process would compute them.

Lightning and torchmetrics average the means of the ranks, or sum in float32.
"""

import math

import torch.distributed as dist
from torch import Tensor


class Means:
    """Sums and counts by name."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[float, int]] = {}

    def add(self, name: str, summed: Tensor, number: int) -> None:
        """Add the sum over a number of predictions to a mean."""
        before, count = self._counted.get(name, (0.0, 0))
        self._counted[name] = (before + float(summed.detach()), count + number)

    def over_all_ranks(self) -> dict[str, float]:
        """The means, equal on all ranks, of the names that any rank has counted; resets them."""
        ranks = [self._counted]
        if dist.is_initialized():
            ranks *= dist.get_world_size()
            dist.all_gather_object(ranks, self._counted)
        self._counted = {}
        means = {}
        for name in dict.fromkeys(name for counted in ranks for name in counted):
            parts = [counted[name] for counted in ranks if name in counted]
            means[name] = math.fsum(part[0] for part in parts) / sum(part[1] for part in parts)
        return means
