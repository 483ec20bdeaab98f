"""Early stopping, and the objective of a sweep: the best value of its metric."""

import math
from unittest.mock import Mock

import pytest
import torch

from tests.helpers.training.fakes import fake_module, fake_trainer
from transformer.common.errors import InputError
from transformer.training.callbacks.best_score import Objective, Patience, check_direction
from transformer.training.model_selection import ModelSelection


def validated(objective: Objective, *values: float) -> Objective:
    for value in values:
        logged = {objective.metric: torch.tensor(value)}
        objective.on_validation_end(fake_trainer(callback_metrics=logged), fake_module())
    return objective


@pytest.mark.parametrize(("metric", "best"), [("val/bleu", 3.0), ("val/loss", 2.0)])
def test_the_best_is_remembered_and_nan_never_is(metric: str, best: float) -> None:
    objective = validated(Objective(metric), math.nan, 2.0, math.nan, 3.0, math.nan)
    assert objective.best == best
    assert math.isnan(validated(Objective(metric), math.nan, math.nan).best or 0.0)


def test_a_trial_that_goes_on_knows_what_was_before() -> None:
    before = validated(Objective("val/bleu"), 31.0)
    other = Objective("val/loss")
    other.load_state_dict(before.state_dict())
    assert other.best is None
    ended = Objective("val/bleu")
    ended.recall({"callbacks": {}})
    assert ended.best is None
    ended.recall({"callbacks": {before.state_key: before.state_dict()}})
    assert validated(ended, 25.0).best == 31.0


def test_an_objective_must_exist_and_look_for_the_best() -> None:
    with pytest.raises(InputError, match="objective=val/blue must be"):
        Objective("val/blue")
    check_direction(Objective("val/bleu"), "maximize")
    check_direction(Objective("val/loss"), None)
    with pytest.raises(InputError, match=r"set hydra\.sweeper\.direction=minimize"):
        check_direction(Objective("val/loss"), "maximize")


def stops(patience: Patience, trainer: Mock, *scores: float) -> list[bool]:
    stopped = []
    for score in scores:
        trainer.callback_metrics = {"val/x": score, "val/loss": 1.0}
        patience.on_validation_end(trainer, fake_module())
        stopped.append(bool(trainer.should_stop))
    return stopped


def test_patience_ends_after_validations_without_a_better_score() -> None:
    patience = Patience(ModelSelection("val/x", "max"), 2)
    assert stops(patience, fake_trainer(), 1, 3, 3, 4, 2, math.nan) == [False] * 5 + [True]
    # A validation at the end, off the interval, does not count.
    patience = Patience(ModelSelection("val/x", "max"), 2)
    trainer = fake_trainer(val_check_interval=4)
    for step, score, waited in ((4, 3, 0), (8, 2, 1), (9, 2, 1), (10, 4, 0)):
        trainer.global_step = step
        assert stops(patience, trainer, score) == [False]
        assert patience.waited == waited


def test_patience_goes_on_waiting_with_what_the_config_says() -> None:
    selection = ModelSelection("val/x", "max")
    before = Patience(selection, 2)
    assert stops(before, fake_trainer(), 3, 2, 1) == [False, False, True]
    for patience, expected in ((2, True), (3, False)):
        after, trainer = Patience(selection, patience), fake_trainer()
        after.load_state_dict(before.state_dict())
        after.on_train_start(trainer, fake_module())
        assert trainer.should_stop is expected
    assert stops(after, trainer, 3) == [True]
