"""The norm of heads is torch's, in value and gradient, with and without mixed precision."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.helpers.model.tolerance import assert_close
from transformer.model.layers.norm import HeadNorm, RootMeanSquareNorm


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_are_normalized_as_by_torch(dtype: torch.dtype) -> None:
    norm = HeadNorm(8, eps=1e-6)
    norm.weight.data = draw(8, seed=1)
    # As a layer gives them: length and head are transposed.
    heads = draw(2, 5, 3, 8, seed=2, dtype=dtype).transpose(1, 2).requires_grad_()
    upstream = draw(2, 3, 5, 8, seed=3, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        result = norm(heads)
        gradients = torch.autograd.grad(result, (heads, norm.weight), upstream)
    exact = heads.detach().float().requires_grad_()
    expected = F.rms_norm(exact, (8,), norm.weight, 1e-6)
    assert result.dtype == dtype
    tolerance = {} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(result.float(), expected, **tolerance)
    expected_gradients = torch.autograd.grad(expected, (exact, norm.weight), upstream.float())
    for gradient, of_torch in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient.float(), of_torch, **tolerance)
    with torch.no_grad():
        torch.testing.assert_close(norm(heads).float(), expected, **tolerance)


def test_the_gradient_is_that_of_the_formula() -> None:
    heads = draw(2, 3, 4, seed=1, dtype=torch.float64).requires_grad_()
    weight = draw(4, seed=2, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(RootMeanSquareNorm.apply, (heads, weight, 1e-6))
    by_formula = heads / (heads.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight
    assert_close(RootMeanSquareNorm.apply(heads, weight, 1e-6), by_formula)
