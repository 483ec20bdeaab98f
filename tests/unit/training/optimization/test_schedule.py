"""Each schedule against numbers worked out by hand."""

from typing import Any

import pytest
import torch

from transformer.settings.training import ScheduleConfig
from transformer.training.optimization.schedule import build_schedule, schedule_factor


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
