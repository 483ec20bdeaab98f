"""The optimizer: Adam as in the paper, or AdamW; the schedule scales its learning rate."""

from collections.abc import Iterable

from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from transformer.settings.training import OptimizerConfig


def build_optimizer(config: OptimizerConfig, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Build the optimizer over the parameters that learn."""
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    groups = [
        {"params": [p for p in learning if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in learning if p.dim() <= 1], "weight_decay": 0.0},
    ]
    kind = {"adam": Adam, "adamw": AdamW}[config.name]
    return kind(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)
