"""The two ways to make the gradient of a sum a mean and to clip it give the same update."""

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.model.tolerance import assert_close
from transformer.settings.training import OptimizerConfig
from transformer.training.optimization.optimizer import build_optimizer
from transformer.training.step.gradient_clipping import clip_mean_gradient, mean_gradient_scale


def updated(by_optimizer: bool, tokens: float | Tensor, clip: float | None) -> list[Tensor]:
    """The norm, and the weights after two updates, the second with a weight without gradient."""
    torch.manual_seed(1)
    model = nn.Linear(5, 3)
    adam = build_optimizer(OptimizerConfig("adamw", weight_decay=0.1), model.parameters())
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape) * 30
    for _ in range(2):
        if by_optimizer:
            norm, adam.grad_scale = mean_gradient_scale(model, tokens, clip)  # type: ignore[attr-defined]
        else:
            norm = clip_mean_gradient(model, tokens, clip, sharded=False)
        adam.step()
        model.weight.grad, model.bias.grad = torch.randn(3, 5) * 20, None
    return [norm, *(weight.detach() for weight in model.parameters())]


@pytest.mark.parametrize("tokens", [7.0, torch.tensor(7.0, dtype=torch.float64)])
@pytest.mark.parametrize("clip", [None, 1.0, 1e4])
def test_the_optimizer_scales_as_clipping_does(tokens: float | Tensor, clip: float | None) -> None:
    found, expected = (updated(by_optimizer, tokens, clip) for by_optimizer in (True, False))
    assert found[0] == pytest.approx(expected[0].item(), rel=1e-6)
    assert found[0].dtype == torch.float32
    for mine, other in zip(found[1:], expected[1:], strict=True):
        assert_close(mine, other)


def test_a_gradient_that_is_not_finite_has_no_finite_norm() -> None:
    model = nn.Linear(2, 2)
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, torch.inf)
    norm, _ = mean_gradient_scale(model, 3.0, 1.0)
    assert not norm.isfinite()
