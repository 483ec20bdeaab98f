"""Frozen weights: they get no gradient and no moments, and do not change."""

import re

from torch import nn

from transformer.common.errors import InputError
from transformer.model.layers.lora import DOWN, UP
from transformer.settings.model import Frozen, ModelConfig

_NAMES: dict[Frozen, str] = {
    "embeddings": r"(source_|target_|)embedding\.",
    "encoder": r"(encoder|stack)\.",
    "decoder": r"decoder\.",
    "norms": r".*norm\.",
    "output": r"projection\.",
}
"""Names of the weights of each group begin with this; the stack of a tagger is an encoder."""


def freeze(model: nn.Module, config: ModelConfig) -> None:
    """Freeze ``model.freeze``, or all except adapters; InputError if no weight learns."""
    frozen = [re.compile(_NAMES[group]) for group in config.freeze]
    for name, weight in model.named_parameters(remove_duplicate=False):
        base = config.lora_rank > 0 and not name.endswith((DOWN, UP))
        if base or any(group.match(name) for group in frozen):
            weight.requires_grad_(False)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise InputError(f"model.freeze=[{','.join(config.freeze)}] leaves no weight to learn")
