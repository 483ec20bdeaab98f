"""The gated convolution is torch's, and does not see padding."""

import pytest
import torch
from torch.nn import functional as F

from tests.helpers.model.tolerance import assert_close
from transformer.model.convolution import GatedConvolution


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_the_convolution_of_torch(window: int, causal: bool) -> None:
    torch.manual_seed(1)
    ours = GatedConvolution(6, window, causal=causal)
    hidden = torch.randn(2, 7, 6)
    before = window - 1 if causal else window // 2
    padded = F.pad(hidden.transpose(1, 2), (before, window - 1 - before))
    # width_out (width window) -> width_out width window
    kernel = ours.linear.weight.unflatten(1, (6, window))
    expected = F.glu(F.conv1d(padded, kernel, ours.linear.bias), dim=1).transpose(1, 2)
    assert_close(ours(hidden, None), expected)


def test_a_sentence_is_the_same_beside_a_longer_one() -> None:
    torch.manual_seed(1)
    ours = GatedConvolution(6, 3, causal=False)
    hidden = torch.randn(2, 7, 6)
    mask = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    mask[0, ..., 4:] = False
    assert_close(ours(hidden, mask)[0, :4], ours(hidden[:1, :4], None)[0])
