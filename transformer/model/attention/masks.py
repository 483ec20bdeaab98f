"""Boolean attention masks: True means "may attend".

They broadcast to ``batch head query key`` and do not know which attention uses them.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Mask = Bool[Tensor, "#batch #head #query #key"]

_ALIGNMENT = 8
"""Elements; fused kernels on a GPU copy a summand whose rows do not begin at a multiple."""


class HiddenKeys(NamedTuple):
    """A mask as fused kernels read it."""

    summand: Float[Tensor, "#batch #head #query room"]
    """Of the scores: -inf where a query may not attend, but 0 where it may attend to nothing.

    It has room for more keys, up to the next multiple of ``_ALIGNMENT``; the kernel cuts that off.
    """
    sees: Float[Tensor, "#batch #head #query 1"]
    """Factor of the result: 0 where a query may attend to nothing, else 1."""


def hide(mask: Mask, dtype: torch.dtype) -> HiddenKeys:
    """Turn a mask into a summand.

    Kernels differ on a query that may attend to nothing: NaN or the mean, also in the gradient.
    Here it attends to everything, and its result is to be multiplied by zero.
    """
    sees = mask.any(-1, keepdim=True)
    rows, keys = mask.shape[:-1], mask.size(-1)
    # Never just as many: torch would compile that separately.
    room = keys + _ALIGNMENT - keys % _ALIGNMENT
    summand = torch.zeros(*rows, room, dtype=dtype, device=mask.device)
    summand[..., :keys].masked_fill_(sees & ~mask, -math.inf)
    return HiddenKeys(summand, sees.to(dtype))


def padding_mask(tokens: Int[Tensor, "batch source"], pad: int) -> Bool[Tensor, "batch 1 1 source"]:
    """Let every query attend to the real tokens of its sentence, not to padding."""
    # batch source -> batch 1 1 source
    return (tokens != pad)[:, None, None, :]


def causal_mask(
    queries: int, keys: int, device: torch.device | None = None
) -> Bool[Tensor, "1 1 query key"]:
    """Let each target position attend to itself and to earlier ones.

    With fewer queries than keys the queries are the last positions, as in decoding with a cache.
    Vaswani et al. 2017, section 3.2.3.
    """
    every = torch.ones(queries, keys, dtype=torch.bool, device=device)
    # query key -> 1 1 query key
    return every.tril(diagonal=keys - queries)[None, None]
