"""Scaled dot-product attention and multi-head attention.

``attend`` is the formula, ``attend_fused`` computes the same with a fused kernel, and the module
only projects. Nothing here knows layers, absolute positions or decoding.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
"""

import math
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.masks import HiddenKeys, Mask, hide
from transformer.model.layers.linear import Linear, linear_together
from transformer.model.layers.mixed_precision import HeadNorm, for_products, precise_on_cpu

QueryHeads = Float[Tensor, "batch head query head_dim"]
KeyHeads = Float[Tensor, "batch kv_head key head_dim"]
Bias = Float[Tensor, "#batch #head #query #key"]
Queries = Float[Tensor, "batch query width"]
Keys = Float[Tensor, "batch key width"]
KeyWidths = Float[Tensor, "batch key kv_heads_width"]

Kernel = Callable[[QueryHeads, KeyHeads, KeyHeads, AttentionBias, float], QueryHeads]
"""Computes ``attend`` in its own way; keys and values may have fewer heads than queries."""


def attend(
    query: QueryHeads,
    key: Float[Tensor, "batch head key head_dim"],
    value: Float[Tensor, "batch head key head_dim"],
    mask: Mask | None = None,
    *,
    bias: Bias | None = None,
    dropout: float = 0.0,
) -> tuple[QueryHeads, Float[Tensor, "batch head query key"]]:
    """Compute ``softmax(Q K^T / sqrt(d_k)) V`` (equation 1) and return the weights with it.

    Args:
        mask: True where a query may attend; a query that may attend to nothing yields zeros.
        bias: Added to the scaled scores (relative positions).
        dropout: Probability with which a weight is dropped.

    Returns:
        The weighted sums of the values, and the weights before dropout.
    """
    d_k = query.size(-1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(d_k)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
        # softmax over -inf alone is 0/0: such a row attends to nothing and must stay zero.
        scores = scores.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout) @ value, weights


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

    Dao et al. 2022, "FlashAttention"; torch picks the kernel. Keys and values may have fewer
    heads than queries. A mask may come as ``hide`` makes it. ``causal=True`` replaces a causal
    mask, so that kernels skip hidden keys; it excludes ``mask`` and ``bias``.
    """
    grouped = False
    if key.size(1) != query.size(1):
        # With a mask, torch groups heads only in its slow kernel, which keeps the weights.
        grouped = mask is None and bias is None
        if not grouped:
            key, value = (split_query_heads(query, heads) for heads in (key, value))
    hidden = hide(mask, query.dtype) if isinstance(mask, Tensor) else mask
    if hidden is None:
        summand = None if bias is None else bias.to(query.dtype)
    else:
        summand = hidden.summand[..., : key.size(2)]
        summand = summand if bias is None else bias.to(query.dtype) + summand
    with precise_on_cpu(query) as dtype:
        attended = F.scaled_dot_product_attention(
            query.to(dtype),
            key.to(dtype),
            value.to(dtype),
            attn_mask=None if summand is None else summand.to(dtype),
            dropout_p=dropout,
            is_causal=causal,
            enable_gqa=grouped,
        ).to(query.dtype)
    return attended if hidden is None else attended * hidden.sees


def formula(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, attention_bias: AttentionBias, dropout: float
) -> tuple[QueryHeads, Float[Tensor, "batch head query key"]]:
    """``attend`` under an attention bias; a head of keys serves its group of queries."""
    return attend(
        query,
        split_query_heads(query, key),
        split_query_heads(query, value),
        attention_bias.dense_mask,
        bias=attention_bias.dense_bias,
        dropout=dropout,
    )


def split_query_heads(
    query: QueryHeads, shared: KeyHeads
) -> Float[Tensor, "batch head key head_dim"]:
    """Repeat each head of keys or values for its group of queries."""
    group = query.size(1) // shared.size(1)
    return shared if group == 1 else shared.repeat_interleave(group, dim=1)


def eager(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, attention_bias: AttentionBias, dropout: float
) -> QueryHeads:
    """The formula as a kernel; those in kernels.py compute the same."""
    return formula(query, key, value, attention_bias, dropout)[0]


class MultiHeadAttention(nn.Module):
    """``Concat(head_1 … head_h) W^O`` with ``head_i = attend(Q W_i^Q, K W_i^K, V W_i^V)``.

    Self-attention is the case query = key = value; cross-attention takes its query from the
    target and key and value from the source (section 3.2.3).

    Args:
        d_model: Width of query, key, value and result.
        num_heads: Heads of queries.
        num_kv_heads: Heads of keys and values, each shared by ``num_heads / num_kv_heads`` heads
            of queries (``ModelConfig`` has the sources); None is ``num_heads``.
        head_dim: ``d_k`` and ``d_v``; None is ``d_model / num_heads``.
        query_key_norm: Normalise every query and key by its root mean square.
        dropout: On the weights.
        kernel: The way to compute ``attend`` (``kernels.py``).
    """

    head_mask: Tensor | None

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        query_key_norm: bool = False,
        dropout: float = 0.0,
        kernel: Kernel = eager,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim or d_model // num_heads
        kv_heads = num_kv_heads or num_heads
        self.dropout = dropout
        self.kernel = kernel
        self.query = Linear(d_model, num_heads * self.head_dim)
        self.key = Linear(d_model, kv_heads * self.head_dim)
        self.value = Linear(d_model, kv_heads * self.head_dim)
        self.output = Linear(num_heads * self.head_dim, d_model)
        self.query_norm = HeadNorm(self.head_dim, eps=1e-6) if query_key_norm else nn.Identity()
        self.key_norm = HeadNorm(self.head_dim, eps=1e-6) if query_key_norm else nn.Identity()
        # A factor for the result of each head; 0 switches it off (heads.py).
        self.register_buffer("head_mask", None, persistent=False)

    def forward(self, query: Queries, key: Keys, value: Keys, mask: Mask | None = None) -> Queries:
        """Project, attend in every head, concatenate, project."""
        keys, values = self.project(key, value)
        return self.attend_projected(query, keys, values, AttentionBias(mask))

    def attend_self(self, hidden: Queries, attention_bias: AttentionBias) -> Queries:
        """Self-attention: query = key = value."""
        return self.attend_heads(*self.project_self(hidden, attention_bias), attention_bias)

    def project_self(
        self, hidden: Queries, attention_bias: AttentionBias
    ) -> tuple[QueryHeads, KeyHeads, KeyHeads]:
        """Queries, keys and values of every head, all of one input."""
        layers = (self.key, self.value, self.query)
        keys, values, queries = map(self._split, linear_together(for_products(hidden), layers))
        keys, queries = self.key_norm(keys), self.query_norm(queries)
        if attention_bias.rotation is not None:
            keys, queries = attention_bias.rotation(keys), attention_bias.rotation(queries)
        return queries, keys, values

    def project(self, key: Keys, value: Keys) -> tuple[KeyHeads, KeyHeads]:
        """Keys and values of every head, as a cache stores them."""
        return self.split_keys(self.key(key), self.value(value))

    def split_keys(self, key: KeyWidths, value: KeyWidths) -> tuple[KeyHeads, KeyHeads]:
        """Keys and values of every head, from what ``self.key`` and ``self.value`` have mapped."""
        return self.key_norm(self._split(key)), self._split(value)

    def attend_projected(
        self, query: Queries, keys: KeyHeads, values: KeyHeads, attention_bias: AttentionBias
    ) -> Queries:
        """Attend to keys and values that ``project`` has made."""
        queries = self.query_norm(self._split(self.query(query)))
        return self.attend_heads(queries, keys, values, attention_bias)

    def attend_heads(
        self, queries: QueryHeads, keys: KeyHeads, values: KeyHeads, attention_bias: AttentionBias
    ) -> Queries:
        """Attend in every head, concatenate, project."""
        dropout = self.dropout if self.training else 0.0
        attended = self.kernel(queries, keys, values, attention_bias, dropout)
        if self.head_mask is not None:
            attended = attended * self.head_mask[:, None, None]
        # batch head query head_dim -> batch query (head head_dim)
        return self.output(attended.transpose(1, 2).flatten(-2))

    def _split(
        self, hidden: Float[Tensor, "batch length heads_width"]
    ) -> Float[Tensor, "batch some_head length head_dim"]:
        # batch length (head head_dim) -> batch head length head_dim
        return hidden.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
