"""Rotary positions: queries and keys are rotated by angles that grow with their position."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Heads = Float[Tensor, "batch head length head_dim"]


# Not frozen: torch.compile of torch 2.11 loses the fields of a frozen dataclass made in a graph.
@dataclass
class Rotation:
    """Cosine and sine of the angles that rotate the pairs of a head, for each position."""

    cosine: Float[Tensor, "length head_dim"]
    sine: Float[Tensor, "length head_dim"]

    def __call__(self, heads: Heads) -> Heads:
        # Component i makes a pair with component i + head_dim / 2.
        first, second = heads.chunk(2, dim=-1)
        swapped = torch.cat((-second, first), dim=-1)
        return heads * self.cosine.to(heads.dtype) + swapped * self.sine.to(heads.dtype)


class RotaryPositions(nn.Module):
    """Rotary positions (Su et al. 2021, section 3.4.2): a score depends on the distance."""

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
