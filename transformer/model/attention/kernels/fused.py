"""torch's fused kernel (Dao et al. 2022, "FlashAttention")."""

from contextlib import nullcontext

import torch
from torch.nn import functional as F

from transformer.model.attention.masks import AdditiveMask, Bias, Mask, additive_mask
from transformer.model.attention.scaled_dot_product import KeyHeads, QueryHeads, repeat_heads


def attend_fused(
    query: QueryHeads,
    key: KeyHeads,
    value: KeyHeads,
    mask: Mask | None = None,
    *,
    bias: Bias | None = None,
    dropout: float = 0.0,
) -> QueryHeads:
    """Compute ``attend`` with torch's fused kernel, without keeping the weights.

    Keys and values may have fewer heads than queries.
    """
    additive = additive_mask(mask, bias, query.dtype)
    return attend_masked(query, key, value, additive, dropout=dropout)


def attend_masked(
    query: QueryHeads,
    key: KeyHeads,
    value: KeyHeads,
    additive: AdditiveMask | None,
    *,
    dropout: float = 0.0,
    causal: bool = False,
) -> QueryHeads:
    """``attend_fused`` with a mask that is additive already.

    ``causal=True`` replaces a causal mask, so that kernels skip hidden keys; it excludes others.
    """
    grouped = False
    # Branches, because a compiled comparison of sizes is no bool.
    if key.size(1) != query.size(1):
        # With a mask, torch groups heads only in its slow kernel, which keeps the weights.
        grouped = additive is None
        if not grouped:
            key, value = repeat_heads(query, key), repeat_heads(query, value)
    summand = None if additive is None else additive.summand[..., : key.size(2)]
    # On a CPU, bfloat16 makes the gradient take 4 to 7 times as long (benchmarks/training).
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
    if additive is None or additive.sees is None:
        return attended
    return attended * additive.sees.to(attended.dtype)
