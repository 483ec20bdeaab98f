"""Trainers of a user that the module refuses."""

from typing import Any

import pytest
from pytorch_lightning.strategies import FSDPStrategy, ModelParallelStrategy, SingleDeviceStrategy

from tests.helpers.training.fakes import fake_trainer
from tests.helpers.training.updates import translation_module
from transformer.common.errors import InputError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": FSDPStrategy()}, "^FSDPStrategy is not supported; take strategy=auto or ddp"),
        ({"strategy": ModelParallelStrategy()}, "^ModelParallelStrategy is not supported"),
        ({"precision": "16-mixed"}, "^precision=16-mixed is not supported; take 32-true or bf16"),
        ({"precision": "64-true"}, "^precision=64-true is not supported"),
    ],
)
def test_a_trainer_that_computes_another_gradient_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    module = translation_module()
    settings = {"strategy": SingleDeviceStrategy("cpu"), "datamodule": None}
    module.trainer = fake_trainer(**(settings | changes))
    with pytest.raises(InputError, match=message):
        module.setup("fit")


def test_one_device_is_not_refused() -> None:
    module = translation_module()
    module.trainer = fake_trainer(strategy=SingleDeviceStrategy("cpu"), datamodule=None)
    module.setup("fit")
