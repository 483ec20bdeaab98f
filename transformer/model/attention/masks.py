"""Attention masks, boolean and additive; they broadcast to ``batch head query key``.

A boolean mask is True where a query may attend.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

Mask = Bool[Tensor, "#batch #head #query #key"]
Bias = Float[Tensor, "#batch #head #query #key"]

_ALIGNMENT = 8
"""Elements; fused kernels on a GPU copy a mask whose rows do not begin at a multiple."""


Source = Int[Tensor, "batch source"] | Float[Tensor, "batch source channel"]
"""Tokens, or vectors, whose padding is NaN."""


def padding_mask(source: Source, pad: int) -> Bool[Tensor, "batch 1 1 source"]:
    """Let every query attend to the real tokens of its sentence, not to padding."""
    real = ~source[..., 0].isnan() if source.is_floating_point() else source != pad
    # batch source -> batch 1 1 source
    return real[:, None, None, :]


def causal_mask(
    queries: int, keys: int, device: torch.device | None = None
) -> Bool[Tensor, "1 1 query key"]:
    """Let queries, the last positions, attend to earlier ones (Vaswani et al. 2017, 3.2.3)."""
    every = torch.ones(queries, keys, dtype=torch.bool, device=device)
    # query key -> 1 1 query key
    return every.tril(diagonal=keys - queries)[None, None]


class AdditiveMask(NamedTuple):
    """Mask and bias as fused kernels read them."""

    summand: Float[Tensor, "#batch #head #query room"]
    """Added to the scaled scores: -inf where a query may not attend, else the bias. If a query may
    attend to nothing, its row is not hidden. On a GPU, a mask has room for keys up to the next
    multiple of ``_ALIGNMENT``, which a kernel cuts off."""
    sees: Float[Tensor, "#batch #head #query 1"] | None
    """Factor of the result: 0 where a query may attend to nothing, else 1; None is always 1."""


def additive_mask(
    mask: Mask | None, bias: Bias | None, dtype: torch.dtype, every_query_sees: bool = False
) -> AdditiveMask | None:
    """Add mask and bias; None if there is neither.

    If a query may attend to nothing, kernels return NaN or the mean, also in the gradient. Here
    this query attends to everything, and its result is multiplied by zero. ``every_query_sees``
    promises that there is no such query, and saves the multiplication; if the promise is wrong,
    the result of that query is the mean of the values. On a CPU the mask is checked instead.
    """
    tensor = bias if mask is None else mask
    if tensor is None:
        return None
    on_cpu = tensor.device.type == "cpu"
    if on_cpu:
        # The softmax is computed in float32 there.
        dtype = torch.promote_types(dtype, torch.float32)
    if mask is None:
        return AdditiveMask(tensor.to(dtype), None)
    sees = mask.any(-1, keepdim=True)
    hidden = sees & ~mask
    # On a GPU, the host would wait for the answer.
    if not every_query_sees and on_cpu and not torch.compiler.is_compiling():
        every_query_sees = bool(sees.all())
    if not on_cpu:
        # Never exactly as many: torch would compile this case separately.
        hidden = F.pad(hidden, (0, _ALIGNMENT - mask.size(-1) % _ALIGNMENT))
    summand = torch.zeros(hidden.shape, dtype=dtype, device=mask.device)
    summand.masked_fill_(hidden, -math.inf)
    if bias is not None:
        summand = summand + F.pad(bias.to(dtype), (0, hidden.size(-1) - mask.size(-1)))
    return AdditiveMask(summand, None if every_query_sees else sees.to(dtype))
