"""The moving average on a device other than a CPU."""

from types import SimpleNamespace
from typing import Any

import torch
from pytorch_lightning.strategies import SingleDeviceStrategy

from tests.helpers.model.tolerance import assert_close
from tests.helpers.training.fakes import fake_trainer
from tests.helpers.training.updates import translation_module
from transformer.training.callbacks.ema import MovingAverage


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
