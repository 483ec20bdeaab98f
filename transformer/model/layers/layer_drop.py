"""Layer dropout (Fan et al. 2020): a training step skips random layers; evaluation uses all."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def layer_is_dropped(probability: float, training: bool) -> bool:
    """Draw whether this pass skips a layer."""
    return training and probability > 0 and torch.rand(()).item() < probability


@contextmanager
def all_layers(model: nn.Module) -> Iterator[None]:
    """Switch layer dropout off within the context."""
    stacks: list[Any] = [module for module in model.modules() if hasattr(module, "layer_drop")]
    before = [stack.layer_drop for stack in stacks]
    for stack in stacks:
        stack.layer_drop = 0.0
    try:
        yield
    finally:
        for stack, probability in zip(stacks, before, strict=True):
            stack.layer_drop = probability
