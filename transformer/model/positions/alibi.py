"""ALiBi: a penalty on the scores that grows with the distance (Press et al. 2022, section 3)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Indices = Int[Tensor, "*#shape"]


class AlibiBias(nn.Module):
    """The bias ``-slope * |key - query|``, with a slope for each head, in both directions."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, head: Indices, distance: Indices) -> Float[Tensor, "*shape"]:
        """The bias of a head at ``distance = key - query``."""
        return -alibi_slope(head, self.num_heads) * distance.abs()


def alibi_slope(head: Int[Tensor, "*shape"], num_heads: int) -> Float[Tensor, "*shape"]:
    """``2 ** (-8i / n)`` for the i-th of n heads, where n is a power of two.

    For other n, the slopes of the next smaller power come first, then every other slope of the next
    larger power (the authors' code, ``get_slopes``).
    """
    power = 2 ** math.floor(math.log2(num_heads))
    between = (2 * (head - power) + 1) / 2
    return 2.0 ** (-8 / power * torch.where(head < power, head + 1, between))
