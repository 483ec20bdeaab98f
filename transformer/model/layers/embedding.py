"""Tokens to vectors (Vaswani et al. 2017, section 3.4)."""

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.model.layers.dropout import Dropout, HiddenStates, TokenDropout
from transformer.model.positions.absolute import LearnedPositions, SinusoidalPositions, Start


class _Table(nn.Embedding):
    """A vector for each token."""

    def reset_parameters(self) -> None:
        """Draw the vectors; on the device ``meta``, torch would import its compiler for nothing."""
        if not self.weight.is_meta:
            super().reset_parameters()


class TokenEmbedding(nn.Module):
    """Look up a token and scale by ``sqrt(d_model)`` (Vaswani et al. 2017, section 3.4).

    The weight has a standard deviation of ``d_model ** -0.5``, so that the output projection can
    share it. The scale gives the embedding unit variance; without ``scaled`` there is none.
    """

    def __init__(self, vocab_size: int, d_model: int, pad: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.lookup = _Table(vocab_size, d_model, padding_idx=pad)
        self.scale = math.sqrt(d_model) if scaled else 1.0

    def forward(self, tokens: Int[Tensor, "batch length"]) -> HiddenStates:
        return self.lookup(tokens) * self.scale


class Embedding(nn.Module):
    """Token embedding plus position, a norm in BART, then dropout (sections 3.4, 3.5 and 5.4).

    ``token_dropout`` drops the token, but not its position. ``positions`` is None if the attention
    has relative positions (model/positions/).
    """

    def __init__(
        self,
        tokens: TokenEmbedding,
        positions: SinusoidalPositions | LearnedPositions | None,
        *,
        norm: nn.Module,
        token_dropout: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.token_dropout = TokenDropout(token_dropout)
        self.positions = positions
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Int[Tensor, "batch length"], start: Start = 0) -> HiddenStates:
        embedded = self.token_dropout(self.tokens(tokens))
        if self.positions is not None:
            embedded = embedded + self.positions(tokens.size(1), start)
        return self.dropout(self.norm(embedded))


class VectorEmbedding(nn.Module):
    """The input of the encoder from a source of vectors: front end, positions, norm and dropout.

    A front end makes a hidden state of each vector (model/front_ends), in place of the token
    embedding; ``scaled`` multiplies it by ``sqrt(d_model)``, as fairseq's S2T does.
    """

    def __init__(
        self,
        front_end: nn.Module,
        positions: SinusoidalPositions | LearnedPositions | None,
        *,
        width: int,
        scaled: bool,
        norm: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.front_end = front_end
        self.scale = math.sqrt(width) if scaled else 1.0
        self.positions = positions
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, source: Float[Tensor, "batch vectors channel"]) -> HiddenStates:
        hidden = self.front_end(source) * self.scale
        if self.positions is not None:
            hidden = hidden + self.positions(hidden.size(1))
        return self.dropout(self.norm(hidden))
