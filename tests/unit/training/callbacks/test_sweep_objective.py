"""A trial of a sweep hands back the best of its validations."""

import math

import pytest
import torch

from tests.helpers.training_fakes import fake_module, fake_trainer
from transformer.common.errors import InputError
from transformer.training.callbacks.sweep_objective import Objective, check_direction


@pytest.mark.parametrize(("metric", "best"), [("val/bleu", 31.0), ("val/loss", 2.0)])
def test_the_best_is_remembered(metric: str, best: float) -> None:
    objective = Objective(metric)
    for bleu, loss in ((20.0, 3.0), (31.0, 2.0), (25.0, 2.5)):
        logged = {"val/bleu": torch.tensor(bleu), "val/loss": torch.tensor(loss)}
        objective.on_validation_end(fake_trainer(callback_metrics=logged), fake_module())
    assert objective.best == best


def validated(objective: Objective, *values: float) -> Objective:
    for value in values:
        logged = {objective.metric: torch.tensor(value)}
        objective.on_validation_end(fake_trainer(callback_metrics=logged), fake_module())
    return objective


@pytest.mark.parametrize(("metric", "best"), [("val/bleu", 3.0), ("val/loss", 2.0)])
def test_nan_is_never_better(metric: str, best: float) -> None:
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


def test_a_trial_that_had_ended_is_read_from_its_checkpoint() -> None:
    before = validated(Objective("val/bleu"), 31.0)
    after = Objective("val/bleu")
    after.recall({"callbacks": {}})
    assert after.best is None
    after.recall({"callbacks": {before.state_key: before.state_dict()}})
    assert after.best == 31.0


def test_a_metric_that_the_task_has_not_is_named() -> None:
    trainer = fake_trainer(callback_metrics={"val/loss": torch.tensor(1.0), "train/loss": 2.0})
    with pytest.raises(InputError, match=r"objective=val/bleu is not there: .* has val/loss$"):
        Objective("val/bleu").on_validation_end(trainer, fake_module())


def test_a_sweep_does_not_look_for_the_worst() -> None:
    check_direction("val/bleu", "maximize")
    check_direction("val/loss", None)
    with pytest.raises(InputError, match=r"set hydra\.sweeper\.direction=minimize"):
        check_direction("val/loss", "maximize")
