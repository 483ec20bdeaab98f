"""Boolean attention masks: True means "may attend"; they broadcast to ``batch head query key``."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Mask = Bool[Tensor, "#batch #head #query #key"]


def padding_mask(tokens: Int[Tensor, "batch source"], pad: int) -> Bool[Tensor, "batch 1 1 source"]:
    """Let every query attend to the real tokens of its sentence, not to padding."""
    # batch source -> batch 1 1 source
    return (tokens != pad)[:, None, None, :]


def causal_mask(
    queries: int, keys: int, device: torch.device | None = None
) -> Bool[Tensor, "1 1 query key"]:
    """Let queries, the last positions, attend to earlier ones (Vaswani et al. 2017, 3.2.3)."""
    every = torch.ones(queries, keys, dtype=torch.bool, device=device)
    # query key -> 1 1 query key
    return every.tril(diagonal=keys - queries)[None, None]
