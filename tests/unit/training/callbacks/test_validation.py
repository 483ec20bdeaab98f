"""The moving average on a device other than a CPU, and the objective of a sweep."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.strategies import SingleDeviceStrategy

from tests.helpers.model.tolerance import assert_close
from tests.helpers.training.fakes import fake_module, fake_trainer
from tests.helpers.training.updates import translation_module
from transformer.common.errors import InputError
from transformer.training.callbacks.validation import MovingAverage, Objective, check_direction


def set_up(device: str) -> tuple[MovingAverage, Any, Any]:
    module, average = translation_module(), MovingAverage(0.75)
    trainer = fake_trainer(strategy=SingleDeviceStrategy(device))
    average.setup(trainer, module, "fit")
    return average, trainer, module.to(device)


def test_the_average_is_updated_without_a_host_read() -> None:
    """A tensor on the meta device cannot be read."""
    average, trainer, module = set_up("meta")
    applied = torch.ones((), dtype=torch.bool, device="meta")
    outputs = {"outcome": SimpleNamespace(applied=applied)}
    average.on_train_batch_end(trainer, module, outputs, None, 0)
    assert average._average_model is not None
    weights = average._average_model.parameters()
    assert {weight.device.type for weight in weights} == {"meta"}


def test_the_average_on_a_gpu_is_that_on_a_cpu() -> None:
    averages, module = [set_up("cpu")[0] for _ in range(2)], set_up("cpu")[2]
    devices = [SingleDeviceStrategy("cpu"), SimpleNamespace(root_device=torch.device("cuda"))]
    torch.manual_seed(1)
    for step, good in enumerate((False, True, False, True, True), 1):
        for weight in module.parameters() if good else ():
            weight.data += torch.randn_like(weight)
        outcome = SimpleNamespace(numbers=SimpleNamespace(good=good), applied=torch.tensor(good))
        for average, strategy in zip(averages, devices, strict=True):
            trainer = fake_trainer(strategy=strategy, global_step=step)
            average.on_train_batch_end(trainer, module, {"outcome": outcome}, None, 0)
    here, there = (average._average_model for average in averages)
    assert here is not None and there is not None
    assert here.n_averaged == there.n_averaged == 3
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        assert_close(one, other)


def validated(objective: Objective, *values: float) -> Objective:
    for value in values:
        logged = {objective.metric: torch.tensor(value)}
        objective.on_validation_end(fake_trainer(callback_metrics=logged), fake_module())
    return objective


@pytest.mark.parametrize(("metric", "best"), [("val/bleu", 3.0), ("val/loss", 2.0)])
def test_the_best_is_remembered_and_nan_never_is(metric: str, best: float) -> None:
    nan = float("nan")
    assert validated(Objective(metric), nan, 2.0, nan, 3.0, nan).best == best
    assert math.isnan(validated(Objective(metric), nan, nan).best or 0.0)


def test_a_trial_that_goes_on_knows_what_was_before() -> None:
    before = validated(Objective("val/bleu"), 31.0)
    after = Objective("val/bleu")
    after.load_state_dict(before.state_dict())
    assert validated(after, 25.0).best == 31.0
    other = Objective("val/loss")
    other.load_state_dict(before.state_dict())
    assert other.best is None
    ended = Objective("val/bleu")
    ended.recall({"callbacks": {}})
    assert ended.best is None
    ended.recall({"callbacks": {before.state_key: before.state_dict()}})
    assert ended.best == 31.0


def test_an_objective_must_exist_and_look_for_the_best() -> None:
    with pytest.raises(InputError, match="objective=val/blue must be"):
        Objective("val/blue")
    check_direction(Objective("val/bleu"), "maximize")
    check_direction(Objective("val/loss"), None)
    with pytest.raises(InputError, match=r"set hydra\.sweeper\.direction=minimize"):
        check_direction(Objective("val/loss"), "maximize")
