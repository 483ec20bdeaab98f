"""Low-rank adapters, merged for inference (Hu et al. 2021, "LoRA", section 4.1)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.layers.linear import Linear

DOWN = "lora_down"
UP = "lora_up"
"""Names of the factors ``A`` and ``B`` beside ``weight``."""


class LowRankLinear(Linear):
    """``x (W + scale B A)^T + b``; ``A`` projects to width ``rank``, ``B``, zero at first, back."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__(base.in_features, base.out_features, device="meta")
        self.weight = base.weight
        self.bias = base.bias
        self.scale = scale
        self.lora_down = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_up = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_down, a=math.sqrt(5))

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width_out"]:
        return super().forward(x) + F.linear(F.linear(x, self.lora_down), self.lora_up) * self.scale


def add_adapters(model: nn.Module, rank: int, alpha: float) -> None:
    """Add an adapter to each linear map of the layers, not to the output."""
    for block in list(model.modules())[1:]:
        for name, linear in list(block.named_children()):
            if type(linear) is Linear:
                setattr(block, name, LowRankLinear(linear, rank, alpha / rank))


def merge_adapters(weights: dict[str, Tensor], scale: float) -> dict[str, Tensor]:
    """``W + scale B A`` for each ``W``; KeyError or RuntimeError if a factor does not fit."""
    merged = {name: w for name, w in weights.items() if not name.endswith((DOWN, UP))}
    for name, up in weights.items():
        if name.endswith(UP):
            stem = name.removesuffix(UP)
            weight = weights[f"{stem}weight"]
            down = weights[stem + DOWN]
            merged[f"{stem}weight"] = torch.addmm(weight, up, down, alpha=scale)
    return merged
