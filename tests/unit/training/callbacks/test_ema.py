"""The moving average of the weights is that of torch, and goes on from a checkpoint."""

from types import SimpleNamespace
from typing import Any

import torch
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from tests.helpers.training.fakes import fake_trainer
from tests.helpers.training.updates import translation_module
from transformer.training.callbacks.ema import MovingAverage


def set_up() -> tuple[MovingAverage, Any, Any]:
    module = translation_module(tiny_transformer(tie_embeddings="all"))
    average = MovingAverage(0.15)
    trainer = fake_trainer(strategy=SingleDeviceStrategy("cpu"))
    average.setup(trainer, module, "fit")
    return average, trainer, module


def averaged(before: Tensor, weight: Tensor, count: int | Tensor) -> Tensor:
    """That of the second update is (2 - 1) / (2 + 8) of the average before; 2 / 11 exceeds 0.15."""
    decay = {1: 0.1, 2: 0.15}[int(count)]
    return decay * before + (1 - decay) * weight


def test_the_average_is_that_of_torch_and_goes_on_from_a_checkpoint() -> None:
    average, trainer, module = set_up()
    expected = AveragedModel(module, avg_fn=averaged)
    torch.manual_seed(1)
    for good in (False, True, False, True, True):
        for weight in module.parameters() if good else ():
            weight.data += torch.randn_like(weight)
        if good:
            expected.update_parameters(module)
        outputs = {"outcome": SimpleNamespace(applied=torch.tensor(good))}
        average.on_train_batch_end(trainer, module, outputs, None, 0)
        checkpoint: dict[str, Any] = {"state_dict": module.state_dict()}
        average.on_save_checkpoint(trainer, module, checkpoint)
        current = {name: value.clone() for name, value in module.state_dict().items()}
        average, trainer, module = set_up()
        module.load_state_dict(checkpoint["state_dict"])
        average.on_load_checkpoint(trainer, module, checkpoint)
        assert all(torch.equal(module.state_dict()[name], current[name]) for name in current)
    assert checkpoint["averaging_state"]["n_averaged"] == expected.n_averaged == 3
    for name, value in expected.module.state_dict().items():
        assert_close(checkpoint["state_dict"][name], value)
    # A validation sees the averages, and training goes on with the weights.
    average.on_validation_epoch_start(trainer, module)
    assert_close(module.model.projection.weight, expected.module.model.projection.weight)
    average.on_validation_epoch_end(trainer, module)
    assert torch.equal(module.model.projection.weight, current["model.projection.weight"])
