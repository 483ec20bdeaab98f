"""Relative positions of T5: a trained bias by distance (Raffel et al. 2020, section 2.1)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Indices = Int[Tensor, "*#shape"]


class BucketBias(nn.Module):
    """A trained bias for each head and each bucket of distances, shared by the layers of a stack.

    Half of the buckets have one distance each. The other half grow logarithmically up to
    ``max_distance``; larger distances share the last bucket. In T5 itself, scores are not
    divided by the root of ``d_k`` (``model.scale_scores=false``).
    """

    def __init__(self, num_heads: int, *, buckets: int, max_distance: int, causal: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.max_distance = max_distance
        self.causal = causal
        self.table = nn.Parameter(torch.empty(buckets, num_heads))

    def forward(self, head: Indices, distance: Indices) -> Float[Tensor, "*shape"]:
        return self.table[self.bucket(distance), head]

    def bucket(self, distance: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Index of the bucket of a distance; a causal table has no buckets for later keys."""
        buckets = len(self.table)
        if self.causal:
            offset = torch.zeros_like(distance)
            steps = (-distance).clamp(min=0)
        else:
            buckets //= 2
            offset = (distance > 0) * buckets
            steps = distance.abs()
        exact = buckets // 2
        growth = torch.log(steps.clamp(min=1) / exact) / math.log(self.max_distance / exact)
        far = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
        return offset + torch.where(steps < exact, steps, far)
