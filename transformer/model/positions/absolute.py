"""Vectors of positions, added to the embeddings (Vaswani et al. 2017, section 3.5)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.common.errors import InputError

Start = int | Int[Tensor, " 1"]
"""The first position; or the only one, on the device, from where the host does not read it."""


def sinusoids(
    length: int, d_model: int, start: int = 0, *, fairseq: bool = False
) -> Float[Tensor, "length width"]:
    """``PE(pos, 2i) = sin(pos / 10000^(2i/d_model))``, the cosine at ``2i + 1``.

    In fairseq (as in tensor2tensor), the last frequency is 1/10000: the exponent is
    ``i / (d_model/2 - 1)``. The first position is 2.
    """
    start += 2 if fairseq else 0
    position = torch.arange(start, start + length, dtype=torch.float64)[:, None]
    count = d_model // 2 - 1 if fairseq else d_model / 2
    frequency = 10_000 ** (-torch.arange(d_model // 2, dtype=torch.float64) / count)
    angle = position * frequency
    # length frequency, twice -> length (frequency sine_or_cosine)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2).float()


_TABLE = 4096
"""Maximum size of the table; larger positions are computed when needed."""


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids for any length, precomputed up to the expected length."""

    table: Tensor

    def __init__(self, d_model: int, expected_length: int, *, fairseq: bool = False) -> None:
        super().__init__()
        self.fairseq = fairseq
        table = torch.empty(min(expected_length, _TABLE), d_model)
        if not table.is_meta:  # torch would import its compiler to compute nothing
            table = sinusoids(*table.shape, fairseq=fairseq)
        self.register_buffer("table", table, persistent=False)

    def forward(self, length: int, start: Start = 0) -> Float[Tensor, "length width"]:
        if isinstance(start, Tensor):
            return self.table.index_select(0, start)
        end = start + length
        if end > len(self.table):
            width = self.table.size(-1)
            return sinusoids(length, width, start, fairseq=self.fairseq).to(self.table)
        return self.table[start:end]


class LearnedPositions(nn.Module):
    """One trained vector per position, up to ``max_length`` (Gehring et al. 2017)."""

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, d_model))

    def forward(self, length: int, start: Start = 0) -> Float[Tensor, "length width"]:
        """Vectors of positions from ``start`` on; raises InputError beyond the last position."""
        if isinstance(start, Tensor):
            return self.table.index_select(0, start)
        if start + length > len(self.table):
            raise InputError(
                f"a sentence of {start + length} tokens does not fit model.max_length="
                f"{len(self.table)}; shorten it, or train with a larger model.max_length"
            )
        return self.table[start : start + length]
