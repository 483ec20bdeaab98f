"""Optimizer and schedules, against numbers worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.helpers.model.models import tiny_config, tiny_transformer
from transformer.common.errors import InputError
from transformer.model.single_stack import build_single_stack
from transformer.settings.training import OptimizerConfig, ScheduleConfig
from transformer.training.optimization import build_optimizer, freeze, schedule_factor


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_each_parameter_is_in_one_group_and_matrices_decay(name: Any) -> None:
    model = tiny_transformer(positions="learned")
    model.encoder.layers[0].requires_grad_(False)
    for parameter in model.parameters():
        parameter.data += 0.25  # zero would not show a decay
        parameter.grad = torch.zeros_like(parameter)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    config = OptimizerConfig(name, lr=0.1, weight_decay=0.5)
    optimizer = build_optimizer(config, model)
    optimizer.step()
    for key, parameter in model.named_parameters():
        decays = parameter.requires_grad and parameter.dim() > 1
        expected = before[key] * (1 - 0.1 * 0.5 if decays else 1.0)
        torch.testing.assert_close(parameter.detach(), expected)
    assert optimizer.defaults["betas"] == (0.9, 0.98)
    assert optimizer.defaults["eps"] == 1e-9


def test_a_frozen_group_without_weights_is_refused() -> None:
    config = tiny_config(decoder_layers=0, freeze=("encoder",))
    stack = build_single_stack(config, causal=True)
    freeze(stack, config)
    assert not any(weight.requires_grad for weight in stack.stack.parameters())
    with pytest.raises(InputError, match=r"^model\.freeze=\[decoder\]: this model has no such wei"):
        freeze(stack, replace(config, freeze=("encoder", "decoder")))


# The first update of Adam is lr in the direction of the gradient, which the decay is part of;
# AdamW decays the weight by lr * decay * weight = 0.1 beside it.
@pytest.mark.parametrize(("name", "expected"), [("adam", 2 - 0.1), ("adamw", 2 - 0.1 - 0.1)])
def test_adamw_decays_beside_the_gradient(name: Any, expected: float) -> None:
    matrix = nn.Parameter(torch.full((1, 1), 2.0))
    matrix.grad = torch.full_like(matrix, 3.0)
    config = OptimizerConfig(name, lr=0.1, weight_decay=0.5)
    build_optimizer(config, nn.ParameterList([matrix])).step()
    assert matrix.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # 1/4, 2/4, then sqrt(4/n).
        (ScheduleConfig("inverse_sqrt", 4), {1: 0.25, 2: 0.5, 4: 1.0, 16: 0.5, 64: 0.25}),
        (ScheduleConfig("inverse_sqrt", 0), {1: 1.0, 4: 0.5, 100: 0.1}),
        (ScheduleConfig("constant", 4), {1: 0.25, 3: 0.75, 4: 1.0, 5: 1.0, 10**6: 1.0}),
        # From 1 at 4 to 0.1 at 12: at a quarter, half and three quarters of the cosine
        # (1 + cos) / 2 is 0.85355, 0.5 and 0.14645.
        (
            ScheduleConfig("cosine", 4, total=12, floor=0.1),
            {2: 0.5, 4: 1.0, 6: 0.868198, 8: 0.55, 10: 0.231802, 12: 0.1, 13: 0.1, 999: 0.1},
        ),
        # From 1 at 4 to 0.2 at 12.
        (
            ScheduleConfig("linear", 4, total=12, floor=0.2),
            {2: 0.5, 4: 1.0, 6: 0.8, 8: 0.6, 12: 0.2, 999: 0.2},
        ),
        # 512^-0.5 = 0.0441942, 4000^-1.5 = 3.95285e-6, 4000^-0.5 = 0.0158114.
        (
            ScheduleConfig("noam", 4000),
            {1: 1.74693e-7, 2000: 3.49386e-4, 4000: 6.98771e-4, 16000: 3.49386e-4},
        ),
        (ScheduleConfig("noam", 0), {1: 0.0441942, 4: 0.0220971}),
    ],
)
def test_factors_of_the_schedules(config: ScheduleConfig, expected: dict[int, float]) -> None:
    factors = {update: schedule_factor(config, 512, update) for update in expected}
    assert factors == pytest.approx(expected, rel=1e-5)
