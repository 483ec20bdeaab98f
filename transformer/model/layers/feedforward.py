"""The position-wise feed-forward block (Vaswani et al. 2017, section 3.3)."""

from collections.abc import Callable

from torch import Tensor, nn

from transformer.model.layers.dropout import Dropout, HiddenStates
from transformer.model.layers.linear import Linear

Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """``FFN(x) = activation(x W_1 + b_1) W_2 + b_2`` (equation 2)."""

    def __init__(
        self,
        d_model: int,
        ffn_dim: int,
        *,
        activation: Activation,
        dropout: float,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.inner = Linear(d_model, ffn_dim, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.outer = Linear(ffn_dim, d_model, bias=bias)

    def forward(self, hidden: HiddenStates) -> HiddenStates:
        return self.outer(self.dropout(self.activation(self.inner(hidden))))


class GatedFeedForward(nn.Module):
    """``(activation(x W_g + b_g) * (x W_1 + b_1)) W_2 + b_2``: SwiGLU with SiLU, GEGLU with GELU.

    Shazeer 2020, "GLU Variants Improve Transformer". Because of the third matrix, it has as many
    weights as the plain block with 1.5 times ``ffn_dim``.
    """

    def __init__(
        self,
        d_model: int,
        ffn_dim: int,
        *,
        activation: Activation,
        dropout: float,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.gate = Linear(d_model, ffn_dim, bias=bias)
        self.inner = Linear(d_model, ffn_dim, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.outer = Linear(ffn_dim, d_model, bias=bias)

    def forward(self, hidden: HiddenStates) -> HiddenStates:
        gated = self.activation(self.gate(hidden)) * self.inner(hidden)
        return self.outer(self.dropout(gated))
