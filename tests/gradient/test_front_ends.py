"""Analytic gradients of front ends against differences, in float64."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call

from transformer.model.front_ends.convolutions import StridedConvolutions, WhisperConvolutions
from transformer.model.front_ends.linear import LinearFrontEnd
from transformer.model.front_ends.patches import PatchEmbedding


@pytest.mark.parametrize(
    ("front_end", "channels"),
    [
        (WhisperConvolutions(2, 3), 4),
        (StridedConvolutions(2, 3), 8),
        (PatchEmbedding(4, 3, class_token=True), 4),
        (LinearFrontEnd(4, 3), 4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_front_ends(front_end: nn.Module, channels: int) -> None:
    """Of vectors and weights; the second row has padding, which has no gradient."""
    front_end.double()
    source = torch.randn(2, 3, channels, dtype=torch.float64, requires_grad=True)
    padding = torch.zeros(2, 3, channels, dtype=torch.bool)
    padding[1, 1, channels // 2 :] = True
    padding[1, 2] = True
    if isinstance(front_end, PatchEmbedding | LinearFrontEnd):
        padding[1, 1] = True
    names = [name for name, _ in front_end.named_parameters()]
    weights = [p.detach().clone().requires_grad_() for p in front_end.parameters()]

    def embedded(source: Tensor, *weights: Tensor) -> Tensor:
        padded = source.masked_fill(padding, torch.nan)
        return functional_call(front_end, dict(zip(names, weights, strict=True)), (padded,))

    assert gradcheck(embedded, (source, *weights))
