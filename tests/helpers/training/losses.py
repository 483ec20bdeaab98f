"""The loss of a run without guided alignment, unless a test asks for it."""

from typing import Any

from transformer.common.schema import typed
from transformer.training.losses.config import LossConfig


def loss_config(**changes: Any) -> LossConfig:
    """Plain label smoothing; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "label_smoothing": 0.1,
        "chunk": 0,
        "bfloat16": False,
        "alignment_weight": 0.0,
        "alignment_layer": None,
        "alignment_head": 0,
        "consistency": "none",
        "consistency_weight": 0.0,
        "cut": 0.0,
    }
    return typed(LossConfig, fields | changes, "loss")
