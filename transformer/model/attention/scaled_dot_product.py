"""Scaled dot-product attention (Vaswani et al. 2017, figure 2, left; section 3.2.1).

``attend`` is the formula; kernels/ compute the same, faster or in less memory.
"""

import math
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.masks import Bias, Mask

QueryHeads = Float[Tensor, "batch head query head_dim"]
KeyHeads = Float[Tensor, "batch kv_head key head_dim"]
RepeatedHeads = Float[Tensor, "batch head key head_dim"]
Weights = Float[Tensor, "batch head query key"]

Formula = Callable[
    [QueryHeads, KeyHeads, KeyHeads, AttentionContext, float], tuple[QueryHeads, Weights]
]
"""What an attention computes, and its weights; keys and values may have fewer heads than queries.

The paper's formula is ``attend_with_weights``."""

Kernel = Callable[[QueryHeads, KeyHeads, KeyHeads, AttentionContext, float], QueryHeads]
"""A faster implementation of a formula, without the weights."""


def attend(
    query: QueryHeads,
    key: RepeatedHeads,
    value: RepeatedHeads,
    mask: Mask | None = None,
    *,
    bias: Bias | None = None,
    dropout: float = 0.0,
) -> tuple[QueryHeads, Weights]:
    """Compute ``softmax(Q K^T / sqrt(d_k)) V`` (equation 1), and the weights before dropout.

    ``mask`` is True where a query may attend. If a query may attend to nothing, its result is zero.
    ``bias`` is added to the scaled scores (relative positions).
    """
    d_k = query.size(-1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(d_k)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
        # softmax over only -inf is 0/0: this query attends to nothing, its result must be zero.
        scores = scores.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout) @ value, weights


def eager(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, context: AttentionContext, dropout: float
) -> QueryHeads:
    """The formula as a kernel."""
    return attend_with_weights(query, key, value, context, dropout)[0]


def attend_with_weights(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, context: AttentionContext, dropout: float
) -> tuple[QueryHeads, Weights]:
    """``attend`` in a context; a group of query heads shares a head of keys."""
    mask, bias = context.dense_mask(), context.dense_bias()
    key, value = repeat_heads(query, key), repeat_heads(query, value)
    return attend(query, key, value, mask, bias=bias, dropout=dropout)


def repeat_heads(query: QueryHeads, shared: KeyHeads) -> RepeatedHeads:
    """Repeat each head of keys or values for its group of query heads."""
    group = query.size(1) // shared.size(1)
    return shared if group == 1 else shared.repeat_interleave(group, dim=1)
