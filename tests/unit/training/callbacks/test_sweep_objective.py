"""The objective of a sweep is the best value of its metric."""

import math

import pytest
import torch

from tests.helpers.training.fakes import fake_module, fake_trainer
from transformer.common.errors import InputError
from transformer.training.callbacks.sweep_objective import Objective, check_direction


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
