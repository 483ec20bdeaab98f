"""Positions inside the attention: a rotation of queries and keys, or a bias on their scores.

Both depend only on the distance of a key from its query, and exist for any length. They belong to
self-attention: positions of two different sentences have no distance. layers/embedding.py has the
vectors that are added to embeddings instead.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Heads = Float[Tensor, "batch head length head_dim"]
Indices = Int[Tensor, "*#shape"]


# Not frozen: torch.compile of torch 2.11 loses the fields of a frozen one that a graph makes.
@dataclass
class Rotation:
    """Cosine and sine of the angles that rotate the pairs of a head, for each position."""

    cosine: Float[Tensor, "length head_dim"]
    sine: Float[Tensor, "length head_dim"]

    def __call__(self, heads: Heads) -> Heads:
        """Rotate each position of queries or keys by its own angles."""
        # Component i makes a pair with component i + head_dim / 2.
        left, right = heads.chunk(2, dim=-1)
        swapped = torch.cat((-right, left), dim=-1)
        return heads * self.cosine.to(heads.dtype) + swapped * self.sine.to(heads.dtype)


class RotaryPositions(nn.Module):
    """Rotary position embedding: the score of a query and a key depends on their distance.

    Su et al. 2021, "RoFormer", section 3.4.2, with the pairs laid out in halves.
    """

    def __init__(self, head_dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.base = base

    def forward(self, positions: Int[Tensor, " length"]) -> Rotation:
        """Angles of these positions: ``position * base ** (-2i / head_dim)``."""
        # Computed each time, because a model in half precision would round a stored table.
        pairs = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=positions.device)
        frequency = self.base ** -(pairs / self.head_dim)
        angle = positions[:, None].float() * frequency
        # length frequency, twice -> length head_dim
        angle = torch.cat((angle, angle), dim=-1)
        return Rotation(angle.cos(), angle.sin())


class AlibiBias(nn.Module):
    """Attention with linear biases: a penalty that grows with the distance, at its own rate a head.

    Press et al. 2022, "Train Short, Test Long", section 3. In an encoder the penalty is the same
    in both directions.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, head: Indices, distance: Indices) -> Float[Tensor, "*shape"]:
        """``-slope * |key - query|`` at ``distance = key - query``."""
        return -alibi_slope(head, self.num_heads) * distance.abs()


def alibi_slope(head: Int[Tensor, "*shape"], num_heads: int) -> Float[Tensor, "*shape"]:
    """``2 ** (-8i / n)`` for the i-th of n heads, where n is a power of two.

    Between two powers the slopes of the smaller one come first, then every other one of the larger
    (the authors' code, ``get_slopes``).
    """
    power = 2 ** math.floor(math.log2(num_heads))
    between = (2 * (head - power) + 1) / 2
    return 2.0 ** (-8 / power * torch.where(head < power, head + 1, between))


class BucketBias(nn.Module):
    """A trained bias for each head and each bucket of distances, shared by the layers of a stack.

    Raffel et al. 2020, "Exploring the Limits of Transfer Learning" (T5), section 2.1. Half of the
    buckets hold one distance each, the rest grow logarithmically up to ``max_distance``; larger
    distances share the last one. Unlike in T5, scores are divided by the root of ``d_k``.
    """

    def __init__(self, num_heads: int, *, buckets: int, max_distance: int, causal: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.max_distance = max_distance
        self.causal = causal
        self.table = nn.Parameter(torch.empty(buckets, num_heads))

    def forward(self, head: Indices, distance: Indices) -> Float[Tensor, "*shape"]:
        """The summand of a head at ``distance = key - query``."""
        return self.table[self.bucket(distance), head]

    def bucket(self, distance: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """The row of the table for a distance; a causal table has none for later keys."""
        buckets = len(self.table)
        if self.causal:
            offset, steps = torch.zeros_like(distance), (-distance).clamp(min=0)
        else:
            buckets //= 2
            offset, steps = (distance > 0) * buckets, distance.abs()
        exact = buckets // 2
        growth = torch.log(steps.clamp(min=1) / exact) / math.log(self.max_distance / exact)
        far = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
        return offset + torch.where(steps < exact, steps, far)


RelativeBias = AlibiBias | BucketBias
