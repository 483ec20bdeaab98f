"""Which weights learn, by which optimizer, at which rate."""

import math
import re

import torch
from torch import nn
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer.common.errors import InputError
from transformer.model.layers.lora import DOWN, UP
from transformer.settings.model import Frozen, ModelConfig
from transformer.settings.training import OptimizerConfig, ScheduleConfig
from transformer.training.muon import Muon, hidden_matrices
from transformer.training.precision import multiplies_bfloat16

# Optimizer.


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> Optimizer:
    """Adam as in the paper, AdamW or Muon, over the weights that learn; only matrices decay."""
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    if config.name == "muon":
        # Adapters are not matrices: then all is stepped by AdamW, which config_warnings.py says.
        matrices = hidden_matrices(model)
        narrow = config.bfloat16
        if narrow == "auto":
            narrow = multiplies_bfloat16(learning[0].device) is True
        return Muon(
            matrices,
            [weight for weight in learning if weight not in matrices],
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            momentum=config.momentum,
            dtype=torch.bfloat16 if narrow else torch.float32,
        )
    groups = [
        {"params": [p for p in learning if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in learning if p.dim() <= 1], "weight_decay": 0.0},
    ]
    kind = {"adam": Adam, "adamw": AdamW}[config.name]
    return kind(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


_FROZEN_NAMES: dict[Frozen, str] = {
    "embeddings": r"(source_|target_|)embedding\.",
    "encoder": r"(encoder|stack)\.",
    "decoder": r"decoder\.",
    "norms": r".*norm\.",
    "output": r"projection\.",
}
"""Names of the weights of each group begin with this; the stack of a tagger is an encoder."""


def freeze(model: nn.Module, config: ModelConfig) -> None:
    """Freeze ``model.freeze``, or all except adapters: no gradient, no moments, no change.

    Raises InputError if no weight learns, or a group has none.
    """
    weights = dict(model.named_parameters(remove_duplicate=False))
    frozen = [re.compile(_FROZEN_NAMES[group]) for group in config.freeze]
    for group, pattern in zip(config.freeze, frozen, strict=True):
        if not any(map(pattern.match, weights)):
            raise InputError(
                f"model.freeze=[{group}]: this model has no such weights; leave it out (the layers "
                "of a single stack are encoder)"
            )
    for name, weight in weights.items():
        is_below_adapter = config.lora_rank > 0 and not name.endswith((DOWN, UP))
        if is_below_adapter or any(pattern.match(name) for pattern in frozen):
            weight.requires_grad_(False)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise InputError(f"model.freeze=[{','.join(config.freeze)}] leaves no weight to learn")


# Schedule: each is a factor of ``optimizer.lr``.


def schedule_factor(config: ScheduleConfig, d_model: int, update: int) -> float:
    """The factor of the n-th update, counted from 1: it rises linearly to 1 at ``warmup``.

    Then ``inverse_sqrt`` falls as ``1 / sqrt(update)``, ``cosine`` by half a cosine to ``floor``
    (Loshchilov and Hutter 2017), ``linear`` by a line (Defazio et al. 2023), and ``constant``
    stays. ``noam`` has no peak of 1.
    """
    warmup = config.warmup
    if config.name == "noam":
        return noam(update, warmup, d_model)
    if update < warmup:
        return update / warmup
    if config.name == "inverse_sqrt":
        return math.sqrt(max(warmup, 1) / update)
    if config.name == "constant":
        return 1.0
    progress = min((update - warmup) / max((config.total or 0) - warmup, 1), 1.0)
    left = 1 - progress if config.name == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return config.floor + (1 - config.floor) * left


def noam(update: int, warmup: int, d_model: int) -> float:
    """``d_model^-0.5 min(update^-0.5, update warmup^-1.5)``: Vaswani et al. 2017, equation 3."""
    return d_model**-0.5 * min(update**-0.5, update * max(warmup, 1) ** -1.5)


def build_schedule(config: ScheduleConfig, optimizer: Optimizer, d_model: int) -> LambdaLR:
    """A scheduler that steps once per update."""
    # torch counts finished updates; the formulas take the number of the next update.
    return LambdaLR(optimizer, lambda done: schedule_factor(config, d_model, done + 1))
