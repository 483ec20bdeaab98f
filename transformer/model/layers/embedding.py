"""Tokens and their positions to vectors (Vaswani et al. 2017, sections 3.4 and 3.5)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.common.errors import InputError
from transformer.model.layers.dropout import Dropout, HiddenStates, TokenDropout


class TokenEmbedding(nn.Module):
    """Look a token up and scale by ``sqrt(d_model)`` (Vaswani et al. 2017, section 3.4).

    The weight has a standard deviation of ``d_model ** -0.5``, so that it can serve as output
    projection too; the scale brings the embedding back to unit variance.
    """

    def __init__(self, vocab_size: int, d_model: int, pad: int) -> None:
        super().__init__()
        self.lookup = nn.Embedding(vocab_size, d_model, padding_idx=pad)
        self.scale = math.sqrt(d_model)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> HiddenStates:
        """Embed tokens, padding included (masks hide it)."""
        return self.lookup(tokens) * self.scale


def sinusoids(
    length: int, d_model: int, start: int = 0, *, fairseq: bool = False
) -> Float[Tensor, "length width"]:
    """``PE(pos, 2i) = sin(pos / 10000^(2i/d_model))``, the cosine at ``2i + 1``.

    In fairseq (as in tensor2tensor) the last frequency is 1/10000: the exponent is
    ``i / (d_model/2 - 1)``; the first position is 2, after those of its padding.
    """
    start += 2 if fairseq else 0
    position = torch.arange(start, start + length, dtype=torch.float64)[:, None]
    count = d_model // 2 - 1 if fairseq else d_model / 2
    frequency = 10_000 ** (-torch.arange(d_model // 2, dtype=torch.float64) / count)
    angle = position * frequency
    # length frequency, twice -> length (frequency sine_or_cosine)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2).float()


_TABLE = 4096
"""Limit of the table; positions beyond are computed when needed."""


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids for any length, precomputed up to the expected one."""

    table: Tensor

    def __init__(self, d_model: int, expected_length: int, *, fairseq: bool = False) -> None:
        super().__init__()
        self.fairseq = fairseq
        table = sinusoids(min(expected_length, _TABLE), d_model, fairseq=fairseq)
        self.register_buffer("table", table, persistent=False)

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "length width"]:
        """Vectors of positions ``start`` to ``start + length``."""
        end = start + length
        if end > len(self.table):
            width = self.table.size(-1)
            return sinusoids(length, width, start, fairseq=self.fairseq).to(self.table)
        return self.table[start:end]


class LearnedPositions(nn.Module):
    """One trained vector a position, up to ``max_length`` (Gehring et al. 2017)."""

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, d_model))

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "length width"]:
        """Vectors of positions from ``start`` on; raises InputError if there are fewer."""
        if start + length > len(self.table):
            raise InputError(
                f"a sentence of {start + length} tokens does not fit model.max_length="
                f"{len(self.table)}; shorten it, or train with a larger model.max_length"
            )
        return self.table[start : start + length]


class Embedding(nn.Module):
    """Token embedding plus position, then dropout (sections 3.4, 3.5 and 5.4).

    ``token_dropout`` drops the token and not its position. ``positions`` is None if the attention
    has relative ones (attention/relative_positions.py).
    """

    def __init__(
        self,
        tokens: TokenEmbedding,
        positions: SinusoidalPositions | LearnedPositions | None,
        *,
        token_dropout: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.token_dropout = TokenDropout(token_dropout)
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Int[Tensor, "batch length"], start: int = 0) -> HiddenStates:
        """Embed tokens at the positions from ``start`` on."""
        embedded = self.token_dropout(self.tokens(tokens))
        if self.positions is not None:
            embedded = embedded + self.positions(tokens.size(1), start)
        return self.dropout(embedded)
