"""Position vectors, added to the embeddings of tokens (Vaswani et al. 2017, section 3.5)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer.common.errors import InputError


def sinusoids(length: int, d_model: int, start: int = 0) -> Float[Tensor, "length width"]:
    """``PE(pos, 2i) = sin(pos / 10000^(2i/d_model))``, the cosine at ``2i + 1``."""
    position = torch.arange(start, start + length, dtype=torch.float64)[:, None]
    frequency = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position * frequency
    # length frequency, twice -> length (frequency sine_or_cosine)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2).float()


_TABLE = 4096
"""Limit of the table; positions beyond are computed when needed."""


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids for any length, precomputed up to the expected one."""

    table: Tensor

    def __init__(self, d_model: int, expected_length: int) -> None:
        super().__init__()
        length = min(expected_length, _TABLE)
        self.register_buffer("table", sinusoids(length, d_model), persistent=False)

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "length width"]:
        """Vectors of positions ``start`` to ``start + length``."""
        end = start + length
        if end > len(self.table):
            return sinusoids(length, self.table.size(-1), start).to(self.table)
        return self.table[start:end]


class LearnedPositions(nn.Module):
    """One trained vector a position, up to ``max_length`` (Gehring et al. 2017)."""

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, d_model))

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "length width"]:
        """Vectors of positions ``start`` to ``start + length``.

        Raises:
            InputError: There are fewer positions.
        """
        if start + length > len(self.table):
            raise InputError(
                f"a sentence of {start + length} tokens does not fit model.max_length="
                f"{len(self.table)}; shorten it, or train with a larger model.max_length"
            )
        return self.table[start : start + length]
