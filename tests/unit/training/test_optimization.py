"""Optimizer, schedules and the detector of bad updates, against numbers worked out by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.updates import any_tokenizer, recovery_config
from transformer.data.batching.batch import collate
from transformer.data.batching.loader import Update
from transformer.settings.training import OptimizerConfig, ScheduleConfig
from transformer.training.optimization import (
    Diverged,
    DivergenceDetector,
    build_optimizer,
    save_text,
    schedule_factor,
)


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


NOTHING = Update.of([], [])


def accepted(detector: DivergenceDetector, loss: float, norm: float, number: int) -> bool:
    """Check an update, and count it."""
    good = bool(detector.accepts(torch.tensor(loss), torch.tensor(norm)))
    detector.count(good, loss, norm, number)
    return good


def seasoned(**changes: float | int | None) -> DivergenceDetector:
    """A detector after twenty good updates with a loss of 2 nats."""
    detector = DivergenceDetector(recovery_config(**changes))
    assert all(accepted(detector, 2.0, 1.0, number) for number in range(20))
    return detector


def test_a_bad_update_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    for loss, norm, reason in (
        (math.nan, 1.0, "its loss is nan"),
        (2.0, math.inf, "the norm of its gradient is inf"),
        (7.1, 1.0, "7.10 where 2.00 is usual"),
    ):
        detector = seasoned()
        assert not accepted(detector, loss, norm, 21)
        assert reason in caplog.text and "1 in a row, 1 in all" in caplog.text
        assert accepted(detector, 6.9, 1e9, 22)
        assert (detector.in_a_row, detector.skipped) == (0, 1)


def test_losses_that_are_good() -> None:
    for explosion, losses in (
        (5.0, [2.0, 2.0, 40.0]),  # no loss is usual at the start
        (None, [2.0] * 20 + [1e30]),
        (5.0, [2.0] * 20 + [4.0, 5.0, 6.0] * 40 + [9.9]),  # the median follows the run
    ):
        detector = DivergenceDetector(recovery_config(explosion=explosion))
        assert all(accepted(detector, loss, 1.0, number) for number, loss in enumerate(losses))


def test_too_many_bad_updates_in_a_row_are_a_divergence() -> None:
    detector = seasoned(skips=3)
    for number in (21, 22):
        assert not accepted(detector, math.nan, 1.0, number)
        detector.raise_if_diverged(NOTHING, number)
    assert accepted(detector, 2.0, 1.0, 23)
    for number in (24, 25, 26):
        assert not accepted(detector, math.nan, 1.0, number)
    with pytest.raises(Diverged, match="26") as raised:
        detector.raise_if_diverged(NOTHING, 26)
    assert (raised.value.update, raised.value.number) == (NOTHING, 26)


def test_a_resumed_detector_decides_alike() -> None:
    detector, resumed = seasoned(skips=3), DivergenceDetector(recovery_config(skips=3))
    accepted(detector, math.nan, 1.0, 21)
    detector.returned = 2
    state = detector.state_dict()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert (resumed.in_a_row, resumed.skipped, resumed.lr_scale) == (1, 1, 0.25)
    assert not accepted(resumed, 7.1, 1.0, 22)


def test_the_batch_of_a_divergence_is_saved_as_text(tmp_path: Path) -> None:
    tokenizer = any_tokenizer()
    batch = collate(tokenizer.encode_source(["aa", "a"]), tokenizer.encode_target(["b", "bbb"]))
    diverged = Diverged("why", Update.of([batch, batch], [0, 1]), 7)
    file = save_text(diverged, tmp_path, 0, tokenizer)
    assert file.name == "diverged-at-7-rank-0.txt"
    assert file.read_text() == 2 * "aa\tb\na\tbbb\n"
