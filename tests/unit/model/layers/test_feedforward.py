"""Both feed-forward blocks drop inner activations in training, and none afterward."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transformer.model.layers.feedforward import FeedForward, GatedFeedForward


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_inner_activations_are_dropped(kind: type[FeedForward | GatedFeedForward]) -> None:
    block = kind(8, 64, activation=F.relu, dropout=0.5)
    seen: list[torch.Tensor] = []
    assert isinstance(block.outer, nn.Module)
    block.outer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    hidden = torch.randn(4, 16, 8, generator=torch.Generator().manual_seed(0))
    block(hidden)
    block.eval()
    block(hidden)
    dropped, whole = seen
    lost = (dropped == 0) & (whole != 0)
    assert 0.4 < lost.float().sum() / (whole != 0).float().sum() < 0.6
    torch.testing.assert_close(dropped[~lost], 2 * whole[~lost])
