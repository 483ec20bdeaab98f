"""What the optimizer does to which parameter."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.helpers.model.models import tiny_transformer
from transformer.settings.training import OptimizerConfig
from transformer.training.optimization.optimizer import build_optimizer


def config(**changes: Any) -> OptimizerConfig:
    return OptimizerConfig(**({"name": "adamw", "lr": 0.1, "weight_decay": 0.5} | changes))


def test_each_parameter_is_in_one_group_and_matrices_decay() -> None:
    model = tiny_transformer()
    for parameter in model.parameters():
        parameter.data += 0.25  # zero would not show a decay
        parameter.grad = torch.zeros_like(parameter)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    build_optimizer(config(), model.parameters()).step()
    for name, parameter in model.named_parameters():
        factor = 1 - 0.1 * 0.5 if parameter.dim() > 1 else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * factor)
    model = tiny_transformer(positions="learned")
    model.encoder.layers[0].requires_grad_(False)
    optimizer = build_optimizer(config(), model.parameters())
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len(set(held))
    assert set(held) == {id(p) for p in model.parameters() if p.requires_grad}
    assert optimizer.defaults["betas"] == (0.9, 0.98)
    assert optimizer.defaults["eps"] == 1e-9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # The first update of Adam is lr in the direction of the gradient, which the decay is
        # part of; AdamW decays the weight by lr * decay * weight = 0.1 beside it.
        ("adam", [2 - 0.1, 2 - 0.1]),
        ("adamw", [2 - 0.1 - 0.1, 2 - 0.1]),
    ],
)
def test_where_the_decay_goes(name: str, expected: list[float]) -> None:
    matrix, bias = nn.Parameter(torch.full((1, 1), 2.0)), nn.Parameter(torch.full((1,), 2.0))
    for parameter in (matrix, bias):
        parameter.grad = torch.full_like(parameter, 3.0)
    build_optimizer(config(name=name), [matrix, bias]).step()
    assert [matrix.item(), bias.item()] == pytest.approx(expected, rel=1e-5)
