"""Residual connections: dropout, sum and norm around a sublayer, in four orders."""

from collections.abc import Callable

from torch import nn

from transformer.model.layers.dropout import Dropout, HiddenStates

Sublayer = Callable[[HiddenStates], HiddenStates]


class PostNorm(nn.Module):
    """``Norm(scale * x + Dropout(Sublayer(x)))``.

    Vaswani et al. 2017, section 3.1, with a scale of 1; with a larger one DeepNorm (Wang et al.
    2022, "DeepNet: Scaling Transformers to 1,000 Layers", section 3).
    """

    def __init__(self, norm: nn.Module, dropout: float, scale: float = 1.0) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.scale = scale

    def forward(self, hidden: HiddenStates, sublayer: Sublayer) -> HiddenStates:
        """Run the sublayer, add its output to the stream, normalise the stream."""
        output = self.dropout(sublayer(hidden))
        return self.norm(output + (hidden if self.scale == 1 else hidden * self.scale))


class PreNorm(nn.Module):
    """``x + Dropout(Sublayer(Norm(x)))``: the stream itself is never normalised.

    Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture".
    """

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, hidden: HiddenStates, sublayer: Sublayer) -> HiddenStates:
        """Run the sublayer on the normalised stream, and add its output."""
        return hidden + self.dropout(sublayer(self.norm(hidden)))


class SandwichNorm(PreNorm):
    """``x + Dropout(Norm(Sublayer(Norm(x))))``: the output is normalised too.

    Ding et al. 2021, "CogView", section 2.4.
    """

    def __init__(self, norm: nn.Module, outer_norm: nn.Module, dropout: float) -> None:
        super().__init__(norm, dropout)
        self.outer_norm = outer_norm

    def forward(self, hidden: HiddenStates, sublayer: Sublayer) -> HiddenStates:
        """Run the sublayer between two norms, and add the result."""
        return hidden + self.dropout(self.outer_norm(sublayer(self.norm(hidden))))


Residual = PostNorm | PreNorm | SandwichNorm
