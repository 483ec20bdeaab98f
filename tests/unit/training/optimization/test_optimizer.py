"""What the optimiser does to which parameter; schedules against numbers worked out by hand."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.helpers.model.models import tiny_transformer
from transformer.training.optimization.optimizer import (
    OptimizerConfig,
    ScheduleConfig,
    build_optimizer,
    build_schedule,
    schedule_factor,
)


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


def factors(updates: list[int], d_model: int = 512, **fields: Any) -> list[float]:
    config = ScheduleConfig(**fields)
    return [schedule_factor(config, d_model, update) for update in updates]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # 1/4, 2/4, then sqrt(4/n).
        ({"name": "inverse_sqrt", "warmup": 4}, {1: 0.25, 2: 0.5, 4: 1.0, 16: 0.5, 64: 0.25}),
        ({"name": "inverse_sqrt", "warmup": 0}, {1: 1.0, 4: 0.5, 100: 0.1}),
        ({"name": "constant", "warmup": 4}, {1: 0.25, 3: 0.75, 4: 1.0, 5: 1.0, 10**6: 1.0}),
        ({"name": "constant", "warmup": 0}, {1: 1.0, 7: 1.0}),
        # From 1 at 4 to 0.1 at 12: at a quarter, half and three quarters of the cosine
        # (1 + cos) / 2 is 0.85355, 0.5 and 0.14645.
        (
            {"name": "cosine", "warmup": 4, "total": 12, "floor": 0.1},
            {2: 0.5, 4: 1.0, 6: 0.868198, 8: 0.55, 10: 0.231802, 12: 0.1, 13: 0.1, 999: 0.1},
        ),
        ({"name": "cosine", "warmup": 0, "total": 2}, {1: 0.5, 2: 0.0, 3: 0.0}),
        # 512^-0.5 = 0.0441942, 4000^-1.5 = 3.95285e-6, 4000^-0.5 = 0.0158114.
        (
            {"name": "noam", "warmup": 4000},
            {1: 1.74693e-7, 2000: 3.49386e-4, 4000: 6.98771e-4, 16000: 3.49386e-4},
        ),
        ({"name": "noam", "warmup": 0}, {1: 0.0441942, 4: 0.0220971}),
        # 128^-0.5 = 0.0883883, 10^-1.5 = 0.0316228.
        (
            {"name": "noam", "warmup": 10, "d_model": 128},
            {1: 0.00279508, 9: 0.0251558, 10: 0.0279508, 40: 0.0139754},
        ),
    ],
)
def test_factors(fields: dict[str, Any], expected: dict[int, float]) -> None:
    assert factors(list(expected), **fields) == pytest.approx(list(expected.values()), rel=1e-5)


@pytest.mark.parametrize("name", ["inverse_sqrt", "noam", "cosine", "constant"])
def test_the_peak_is_at_the_end_of_the_warm_up(name: str) -> None:
    total = 300 if name == "cosine" else None
    curve = factors(list(range(1, 301)), name=name, warmup=50, total=total)
    assert max(curve) == curve[49]
    assert curve[:50] == pytest.approx([curve[49] * n / 50 for n in range(1, 51)])
    assert curve[49:] == sorted(curve[49:], reverse=True)


def test_the_first_update_is_made_with_the_first_factor() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=8.0)
    scheduler = build_schedule(ScheduleConfig("inverse_sqrt", 4), optimizer, 512)
    rates = []
    for _ in range(16):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates[:4] == [2.0, 4.0, 6.0, 8.0]
    assert rates[15] == pytest.approx(4.0)
