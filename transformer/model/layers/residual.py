"""Residual connections: dropout, sum and norm around a sublayer, in three orders."""

from collections.abc import Callable

from torch import nn

from transformer.model.layers.dropout import Dropout, HiddenStates

Sublayer = Callable[[HiddenStates], HiddenStates]


class Residual(nn.Module):
    """A residual connection; each subclass is one order of norm, sublayer and dropout."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)


class PostNorm(Residual):
    """``Norm(x + Dropout(Sublayer(x)))``: Vaswani et al. 2017, sections 3.1 and 5.4."""

    def forward(self, hidden: HiddenStates, sublayer: Sublayer) -> HiddenStates:
        return self.norm(hidden + self.dropout(sublayer(hidden)))


class PreNorm(Residual):
    """``x + Dropout(Sublayer(Norm(x)))`` (Xiong et al. 2020): the stream is never normalized."""

    def forward(self, hidden: HiddenStates, sublayer: Sublayer) -> HiddenStates:
        return hidden + self.dropout(sublayer(self.norm(hidden)))


class SandwichNorm(Residual):
    """``x + Dropout(Norm(Sublayer(Norm(x))))``: Ding et al. 2021, "CogView", section 2.4."""

    def __init__(self, norm: nn.Module, outer_norm: nn.Module, dropout: float) -> None:
        super().__init__(norm, dropout)
        self.outer_norm = outer_norm

    def forward(self, hidden: HiddenStates, sublayer: Sublayer) -> HiddenStates:
        return hidden + self.dropout(self.outer_norm(sublayer(self.norm(hidden))))
