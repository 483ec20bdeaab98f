"""The optimiser (Adam as in the paper, or AdamW), its learning rate, and weights that stay."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import nn
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer.common.errors import InputError, raise_objections
from transformer.common.schema import Range
from transformer.model.config import Frozen, ModelConfig
from transformer.model.layers.lora import DOWN, UP


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019).

    ``lr`` is the peak, or the factor of ``noam``. ``weight_decay`` applies to matrices only.
    """

    name: Literal["adam", "adamw"] = "adam"
    lr: Annotated[float, Range(above=0, below=math.inf)] = 2e-3
    betas: tuple[float, float] = (0.9, 0.98)
    eps: Annotated[float, Range(0, below=math.inf)] = 1e-9
    weight_decay: Annotated[float, Range(0, below=math.inf)] = 0.0

    def __post_init__(self) -> None:
        wrong = not all(0 <= beta < 1 for beta in self.betas)
        message = f"optimizer.betas={list(self.betas)} must be from 0 and below 1"
        raise_objections([message] if wrong else [])


def build_optimizer(config: OptimizerConfig, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Build the optimiser over the parameters that learn."""
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    groups = [
        {"params": [p for p in learning if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in learning if p.dim() <= 1], "weight_decay": 0.0},
    ]
    kind = {"adam": Adam, "adamw": AdamW}[config.name]
    return kind(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


@dataclass(frozen=True)
class ScheduleConfig:
    """Which schedule, and how long it warms up.

    Attributes:
        total: Updates until the cosine reaches ``floor``; null: ``trainer.max_steps``; -1: those of
            ``trainer.max_epochs``.
    """

    name: Literal["inverse_sqrt", "noam", "cosine", "constant"] = "cosine"
    warmup: Annotated[int, Range(0)] = 1000
    total: int | None = None
    floor: Annotated[float, Range(0, 1)] = 0.0


def noam(update: int, warmup: int, d_model: int) -> float:
    """``d_model^-0.5 min(update^-0.5, update warmup^-1.5)``: Vaswani et al. 2017, equation 3."""
    return d_model**-0.5 * min(update**-0.5, update * max(warmup, 1) ** -1.5)


def schedule_factor(config: ScheduleConfig, d_model: int, update: int) -> float:
    """The factor of the n-th update, counted from 1: it rises linearly to 1 at ``warmup``.

    Then ``inverse_sqrt`` falls as ``1 / sqrt(update)``, ``cosine`` by half a cosine to ``floor``
    (Loshchilov and Hutter 2017), and ``constant`` stays.
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
    return config.floor + (1 - config.floor) * (1 + math.cos(math.pi * progress)) / 2


def build_schedule(config: ScheduleConfig, optimizer: Optimizer, d_model: int) -> LambdaLR:
    """A scheduler that steps once per update."""
    # torch counts finished updates; the formulas take the number of the next one.
    return LambdaLR(optimizer, lambda done: schedule_factor(config, d_model, done + 1))


_NAMES: dict[Frozen, str] = {
    "embeddings": r"(source_|target_|)embedding\.",
    "encoder": r"(encoder|stack)\.",
    "decoder": r"decoder\.",
    "norms": r".*norm\.",
    "output": r"projection\.",
}
"""Names of the weights of each group begin with this; the stack of a tagger is an encoder."""


def freeze(model: nn.Module, config: ModelConfig) -> None:
    """Exclude ``model.freeze``, or all but adapters, from learning; InputError if none is left."""
    frozen = [re.compile(_NAMES[group]) for group in config.freeze]
    for name, weight in model.named_parameters(remove_duplicate=False):
        base = config.lora_rank > 0 and not name.endswith((DOWN, UP))
        if base or any(group.match(name) for group in frozen):
            weight.requires_grad_(False)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise InputError(f"model.freeze=[{','.join(config.freeze)}] leaves no weight to learn")
