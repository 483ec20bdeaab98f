"""Tokens to vectors; positions.py adds the positions."""

import math

from jaxtyping import Float, Int
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """Look a token up and scale by ``sqrt(d_model)`` (Vaswani et al. 2017, section 3.4).

    The weight has a standard deviation of ``d_model ** -0.5``, so that it can serve as output
    projection too; the scale brings the embedding back to unit variance.
    """

    def __init__(self, vocab_size: int, d_model: int, pad: int) -> None:
        super().__init__()
        self.lookup = nn.Embedding(vocab_size, d_model, padding_idx=pad)
        self.scale = math.sqrt(d_model)

    @property
    def weight(self) -> Tensor:
        """The table, ``vocab width``."""
        return self.lookup.weight

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length width"]:
        """Embed tokens, padding included (masks hide it)."""
        return self.lookup(tokens) * self.scale
