"""torch's fused kernel (Dao et al. 2022, "FlashAttention"), and the mask in its format."""

import math
from contextlib import nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.masks import Mask
from transformer.model.attention.scaled_dot_product import Bias, KeyHeads, QueryHeads, repeat_heads

_ALIGNMENT = 8
"""Elements; fused kernels on a GPU copy a summand whose rows do not begin at a multiple."""


class HiddenKeys(NamedTuple):
    """A mask as fused kernels read it."""

    summand: Float[Tensor, "#batch #head #query room"]
    """Of the scores: -inf where a query may not attend, but 0 where it may attend to nothing. The
    kernel cuts off the room for keys up to the next multiple of ``_ALIGNMENT``."""
    sees: Float[Tensor, "#batch #head #query 1"] | None
    """Factor of the result: 0 where a query may attend to nothing, else 1; None is always 1."""


def hide(mask: Mask, dtype: torch.dtype, no_row_empty: bool = False) -> HiddenKeys:
    """Convert a mask to a bias of the scores.

    If a query may attend to nothing, kernels return NaN or the mean, also in the gradient. Here
    this query attends to everything, and its result is multiplied by zero, unless ``no_row_empty``
    promises that there is none.
    """
    sees = mask.any(-1, keepdim=True)
    rows, keys = mask.shape[:-1], mask.size(-1)
    # Never exactly as many: torch would compile this case separately.
    room = keys + _ALIGNMENT - keys % _ALIGNMENT
    summand = torch.zeros(*rows, room, dtype=dtype, device=mask.device)
    summand[..., :keys].masked_fill_(sees & ~mask, -math.inf)
    return HiddenKeys(summand, None if no_row_empty else sees.to(dtype))


def hidden_keys(attention_bias: AttentionBias, dtype: torch.dtype) -> HiddenKeys | None:
    """The mask of an attention bias in this dtype, computed once for all layers."""
    mask = attention_bias.dense_mask
    if mask is None:
        return None
    return attention_bias.once(
        f"hidden_keys {dtype}", lambda: hide(mask, dtype, attention_bias.no_row_empty)
    )


def prepare(attention_bias: AttentionBias, dtype: torch.dtype) -> None:
    """Compute the kernel's mask in this dtype; a compiled layer cannot cache it for the next."""
    _ = attention_bias.dense_mask, attention_bias.dense_bias
    if not attention_bias.only_causal:
        hidden_keys(attention_bias, dtype)


def attend_fused(
    query: QueryHeads,
    key: KeyHeads,
    value: KeyHeads,
    mask: Mask | HiddenKeys | None = None,
    *,
    bias: Bias | None = None,
    dropout: float = 0.0,
    causal: bool = False,
) -> QueryHeads:
    """Compute ``attend`` with torch's fused kernel, without keeping the weights.

    Keys and values may have fewer heads than queries. ``mask`` may be an output of ``hide``.
    ``causal=True`` replaces a causal mask, so that kernels skip hidden keys; it excludes ``mask``
    and ``bias``.
    """
    grouped = False
    # Branches, because a compiled comparison of sizes is no bool.
    if key.size(1) != query.size(1):
        # With a mask, torch groups heads only in its slow kernel, which keeps the weights.
        grouped = mask is None and bias is None
        if not grouped:
            key, value = repeat_heads(query, key), repeat_heads(query, value)
    hidden = hide(mask, query.dtype) if isinstance(mask, Tensor) else mask
    summand = None if bias is None else bias.to(query.dtype)
    if hidden is not None:
        masked = hidden.summand[..., : key.size(2)]
        summand = masked if summand is None else summand + masked
    # On a CPU, bfloat16 makes the gradient take 4 to 7 times as long (docs/performance.md).
    precise = query.device.type == "cpu" and query.dtype == torch.bfloat16
    dtype = torch.float32 if precise else query.dtype
    with torch.autocast("cpu", enabled=False) if precise else nullcontext():
        attended = F.scaled_dot_product_attention(
            query.to(dtype),
            key.to(dtype),
            value.to(dtype),
            attn_mask=None if summand is None else summand.to(dtype),
            dropout_p=dropout,
            is_causal=causal,
            enable_gqa=grouped,
        ).to(query.dtype)
    return attended if hidden is None or hidden.sees is None else attended * hidden.sees
