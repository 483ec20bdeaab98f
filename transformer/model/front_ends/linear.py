"""Vectors of any kind to hidden states."""

from jaxtyping import Float
from torch import Tensor, nn

from transformer.model.front_ends.padding import without_padding
from transformer.model.layers.dropout import HiddenStates
from transformer.model.layers.linear import Linear


class LinearFrontEnd(nn.Module):
    """``x W^T + b`` of each vector; NaN marks padding."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.linear = Linear(channels, width)

    def forward(self, source: Float[Tensor, "batch length channels"]) -> HiddenStates:
        return self.linear(without_padding(source)[0])
