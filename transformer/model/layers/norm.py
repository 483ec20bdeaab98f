"""Residual connections: dropout, sum and norm around a sublayer, in four orders."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from transformer.model.layers.dropout import Dropout

Stream = Float[Tensor, "batch length width"]
Sublayer = Callable[[Stream], Stream]


class Residual(nn.Module):
    """The parts of a residual connection: the norm, and the dropout of the sublayer's output."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)


class PostNorm(Residual):
    """``Norm(scale * x + Dropout(Sublayer(x)))``.

    Vaswani et al. 2017, section 3.1, with a scale of 1; with a larger one DeepNorm (Wang et al.
    2022, "DeepNet: Scaling Transformers to 1,000 Layers", section 3).
    """

    def __init__(self, norm: nn.Module, dropout: float, scale: float = 1.0) -> None:
        super().__init__(norm, dropout)
        self.scale = scale

    def forward(self, hidden: Stream, sublayer: Sublayer) -> Stream:
        """Run the sublayer, add its output to the stream, normalise the stream."""
        output = self.dropout(sublayer(hidden))
        return self.norm(output + (hidden if self.scale == 1 else hidden * self.scale))


class PreNorm(Residual):
    """``x + Dropout(Sublayer(Norm(x)))``: the stream itself is never normalised.

    Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture".
    """

    def forward(self, hidden: Stream, sublayer: Sublayer) -> Stream:
        """Run the sublayer on the normalised stream, and add its output."""
        return hidden + self.dropout(sublayer(self.norm(hidden)))


class SandwichNorm(Residual):
    """``x + Dropout(Norm(Sublayer(Norm(x))))``: the output is normalised too.

    Ding et al. 2021, "CogView", section 2.4.
    """

    def __init__(self, norm: nn.Module, outer_norm: nn.Module, dropout: float) -> None:
        super().__init__(norm, dropout)
        self.outer_norm = outer_norm

    def forward(self, hidden: Stream, sublayer: Sublayer) -> Stream:
        """Run the sublayer between two norms, and add the result."""
        return hidden + self.dropout(self.outer_norm(sublayer(self.norm(hidden))))
