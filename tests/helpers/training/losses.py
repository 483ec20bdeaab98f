"""The loss of a run without guided alignment, unless a test asks for it."""

from typing import Any

from transformer.common.schema import typed
from transformer.settings.training import LossConfig


def loss_config(**changes: Any) -> LossConfig:
    """Plain label smoothing; ``changes`` replace fields."""
    return typed(LossConfig, {"chunk": 0} | changes, "loss")
