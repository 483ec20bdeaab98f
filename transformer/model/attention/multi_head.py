"""Multi-head attention (Vaswani et al. 2017, figure 2, right; section 3.2.2)."""

import math

from jaxtyping import Float
from torch import Tensor, nn

from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.masks import Mask
from transformer.model.attention.scaled_dot_product import (
    Formula,
    Kernel,
    KeyHeads,
    QueryHeads,
    attend_with_weights,
)
from transformer.model.layers.fused_projection import linear_together
from transformer.model.layers.linear import Linear
from transformer.model.layers.norm import HeadNorm

Queries = Float[Tensor, "batch query width"]
Keys = Float[Tensor, "batch key width"]
Projected = Float[Tensor, "batch length heads_width"]


class MultiHeadAttention(nn.Module):
    """``Concat(head_1 … head_h) W^O`` with ``head_i = attend(Q W_i^Q, K W_i^K, V W_i^V)``.

    In self-attention, query = key = value. In cross-attention, the query comes from the target; key
    and value come from the source (section 3.2.3). ``num_heads / num_kv_heads`` query heads share a
    head of keys and values; ``head_dim`` is ``d_k`` and ``d_v`` (``ModelConfig`` has the sources).
    ``kernel`` computes ``formula`` faster; without one, the formula itself computes.
    """

    head_mask: Tensor | None

    def __init__(  # noqa: PLR0913 -- all but two by name
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        query_key_norm: bool = False,
        scale_scores: bool = True,
        biases: bool = True,
        dropout: float = 0.0,
        formula: Formula = attend_with_weights,
        kernel: Kernel | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim or d_model // num_heads
        kv_heads = num_kv_heads or num_heads
        self.dropout = dropout
        self.formula = formula
        self.kernel = kernel
        # Every kernel divides the scores by the root of d_k.
        self.query_scale = None if scale_scores else math.sqrt(self.head_dim)
        self.query = Linear(d_model, num_heads * self.head_dim, bias=biases)
        self.key = Linear(d_model, kv_heads * self.head_dim, bias=biases)
        self.value = Linear(d_model, kv_heads * self.head_dim, bias=biases)
        self.output = Linear(num_heads * self.head_dim, d_model, bias=biases)
        self.query_norm = HeadNorm(self.head_dim, eps=1e-6) if query_key_norm else nn.Identity()
        self.key_norm = HeadNorm(self.head_dim, eps=1e-6) if query_key_norm else nn.Identity()
        # A factor for the result of each head; 0 switches it off (head_masks.py).
        self.register_buffer("head_mask", None, persistent=False)

    def forward(self, query: Queries, key: Keys, value: Keys, mask: Mask | None = None) -> Queries:
        """The paper's attention; ``mask`` is True where a query may attend."""
        return self.attend(query, key, value, AttentionContext(mask))

    def attend(self, query: Queries, key: Keys, value: Keys, context: AttentionContext) -> Queries:
        """``forward`` as a layer calls it, with all that modifies the scores."""
        queries, keys, values = self.project(query, key, value, context)
        return self.attend_heads(queries, keys, values, context)

    def project(
        self, query: Queries, key: Keys, value: Keys, context: AttentionContext
    ) -> tuple[QueryHeads, KeyHeads, KeyHeads]:
        """``Q W^Q``, ``K W^K`` and ``V W^V``, split into heads."""
        if query is key is value:
            linears = (self.query, self.key, self.value)
            query, key, value = linear_together(query, linears)
        else:
            query, key, value = self.query(query), self.key(key), self.value(value)
        queries, (keys, values) = self.split_queries(query), self.split_keys(key, value)
        return context.rotate(queries), context.rotate(keys), values

    def split_queries(self, query: Projected) -> QueryHeads:
        """Split the output of ``self.query`` into heads."""
        queries = self.query_norm(self._split(query))
        return queries if self.query_scale is None else queries * self.query_scale

    def split_keys(self, key: Projected, value: Projected) -> tuple[KeyHeads, KeyHeads]:
        """Split the outputs of ``self.key`` and ``self.value`` into heads, for a cache."""
        return self.key_norm(self._split(key)), self._split(value)

    def attend_heads(
        self, queries: QueryHeads, keys: KeyHeads, values: KeyHeads, context: AttentionContext
    ) -> Queries:
        """Attend in every head, concatenate, project."""
        dropout = self.dropout if self.training else 0.0
        if self.kernel is None:
            attended, _ = self.formula(queries, keys, values, context, dropout)
        else:
            attended = self.kernel(queries, keys, values, context, dropout)
        if self.head_mask is not None:
            attended = attended * self.head_mask[:, None, None]
        # batch head query head_dim -> batch query (head head_dim)
        return self.output(attended.transpose(1, 2).flatten(-2))

    def _split(self, projected: Projected) -> Float[Tensor, "batch some_head length head_dim"]:
        # batch length (head head_dim) -> batch head length head_dim
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
