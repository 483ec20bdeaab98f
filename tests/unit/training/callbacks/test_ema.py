"""The moving average of the weights on a device other than a CPU."""

from types import SimpleNamespace

import pytest
from pytorch_lightning.strategies import SingleDeviceStrategy

from tests.helpers.training_fakes import fake_trainer
from tests.helpers.updates import translation_module
from transformer.training.callbacks.ema import MovingAverage


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_average_is_updated_without_a_host_read(device: str) -> None:
    """A tensor on the meta device cannot be read."""
    module, average = translation_module(), MovingAverage(0.75)
    trainer = fake_trainer(strategy=SingleDeviceStrategy(device))
    average.setup(trainer, module, "fit")
    module.to(device)
    outputs = {"outcome": SimpleNamespace(good=True)}
    for step in (1, 2):
        trainer.global_step = step
        average.on_train_batch_end(trainer, module, outputs, None, 0)
    assert average._average_model is not None
    weights = average._average_model.parameters()
    assert {weight.device.type for weight in weights} == {device}
    assert average._average_model.n_averaged == 2
