"""Patches of a picture to hidden states."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer.model.front_ends.padding import without_padding
from transformer.model.layers.linear import Linear


class PatchEmbedding(nn.Module):
    """``z_0 = [x_class; x_p^1 E; x_p^2 E; …]`` (Dosovitskiy et al. 2021, equation 1).

    The ``channels`` numbers of a patch are in the order height, width, channel. Without
    ``class_token`` there is no x_class; with it, the result is one longer than the source. ``E``
    has a bias, as in the authors' code. Positions are added outside. NaN marks padding.
    """

    def __init__(self, channels: int, width: int, class_token: bool = False) -> None:
        super().__init__()
        self.linear = Linear(channels, width)
        # Zero, as in the authors' code.
        self.class_token = nn.Parameter(torch.zeros(width)) if class_token else None

    def forward(
        self, source: Float[Tensor, "batch length channels"]
    ) -> Float[Tensor, "batch length_out width"]:
        embedded = self.linear(without_padding(source)[0])
        if self.class_token is None:
            return embedded
        # width -> batch 1 width
        first = self.class_token.to(embedded.dtype).expand(len(source), 1, -1)
        return torch.cat([first, embedded], dim=1)
