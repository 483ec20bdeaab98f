"""As much of Lightning as a callback looks at, without a training run behind it."""

from typing import Any
from unittest.mock import Mock

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.strategies import Strategy


def fake_trainer(**changes: Any) -> Mock:
    """A trainer on one device at update 0, which logs every second update."""
    fields: dict[str, Any] = {
        "global_step": 0,
        "global_rank": 0,
        "is_global_zero": True,
        "world_size": 1,
        "precision": "32-true",
        "log_every_n_steps": 2,
        "val_check_interval": 1,
        "should_stop": False,
        "sanity_checking": False,
        "ckpt_path": None,
        "estimated_stepping_batches": 40,
        "callback_metrics": {},
        "optimizers": [Mock()],
        "loggers": [],
        "callbacks": [],
        "datamodule": Mock(epochs=lambda done: done / 10),
        "strategy": one_process(),
    }
    return Mock(spec=Trainer, **(fields | changes))


def one_process() -> Mock:
    """A strategy that has nobody to ask but itself."""
    strategy = Mock(spec=Strategy, root_device=torch.device("cpu"))
    strategy.reduce = lambda tensor, reduce_op: tensor
    strategy.reduce_boolean_decision = lambda decision, all: decision
    return strategy


def fake_module() -> Mock:
    """A module on the CPU; ``logged`` tells what it was given to log."""
    return Mock(spec=LightningModule, device=torch.device("cpu"), detector=Mock(skipped=0))


def logged(module: Mock) -> list[dict[str, float]]:
    return [call.args[0] for call in module.log_dict.call_args_list]
