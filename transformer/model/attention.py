"""Scaled dot-product attention and its multi-head form.

The formula comes first, as a pure function; the fused kernel beside it is its twin; the module
around them only projects. Nothing here knows about layers, positions or decoding.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
"""

import math

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.config import AttentionKernel

Mask = Bool[Tensor, "#batch #head #query #key"]
Heads = Float[Tensor, "batch head key head_dim"]


def attend(
    query: Float[Tensor, "batch head query head_dim"],
    key: Float[Tensor, "batch head key head_dim"],
    value: Float[Tensor, "batch head key head_dim"],
    mask: Mask | None = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "batch head query head_dim"], Float[Tensor, "batch head query key"]]:
    """Compute ``softmax(Q K^T / sqrt(d_k)) V`` (equation 1) and return the weights with it.

    Args:
        query: What is looked for.
        key: What each position offers to be found by.
        value: What each position hands over once found.
        mask: True where a query may attend; a query that may attend to nothing yields zeros.
        dropout: Probability with which a weight is dropped.

    Returns:
        The weighted sums of the values, and the weights before dropout.
    """
    d_k = query.size(-1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
        # softmax over -inf alone is 0/0: such a row attends to nothing and must stay zero.
        scores = scores.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout) @ value, weights


def attend_fused(
    query: Float[Tensor, "batch head query head_dim"],
    key: Float[Tensor, "batch head key head_dim"],
    value: Float[Tensor, "batch head key head_dim"],
    mask: Mask | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "batch head query head_dim"]:
    """Compute what ``attend`` computes with torch's fused kernel, without keeping the weights.

    Dao et al. 2022, "FlashAttention"; torch picks the kernel.
    """
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
    attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    # Kernels differ on a row that may attend to nothing: some give NaN, some the mean.
    return attended.masked_fill(~mask.any(-1, keepdim=True), 0.0)


class MultiHeadAttention(nn.Module):
    """``Concat(head_1 … head_h) W^O`` with ``head_i = attend(Q W_i^Q, K W_i^K, V W_i^V)``.

    Self-attention is the case query = key = value; cross-attention takes its query from the
    target and key and value from the source (section 3.2.3).
    """

    def __init__(
        self, d_model: int, num_heads: int, *, dropout: float, kernel: AttentionKernel
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.kernel = kernel
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(
        self,
        query: Float[Tensor, "batch query width"],
        key: Float[Tensor, "batch key width"],
        value: Float[Tensor, "batch key width"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch query width"]:
        """Project, attend in every head, concatenate, project."""
        keys, values = self.project(key, value)
        return self.attend_projected(query, keys, values, mask)

    def project(
        self, key: Float[Tensor, "batch key width"], value: Float[Tensor, "batch key width"]
    ) -> tuple[Heads, Heads]:
        """Keys and values of every head, as a cache stores them."""
        return self._split(self.key(key)), self._split(self.value(value))

    def attend_projected(
        self,
        query: Float[Tensor, "batch query width"],
        keys: Heads,
        values: Heads,
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch query width"]:
        """Attend to keys and values that were projected before."""
        dropout = self.dropout if self.training else 0.0
        queries = self._split(self.query(query))
        if self.kernel == "eager":
            attended, _ = attend(queries, keys, values, mask, dropout)
        else:
            attended = attend_fused(queries, keys, values, mask, dropout)
        # batch head query head_dim -> batch query (head head_dim)
        return self.output(attended.transpose(1, 2).flatten(-2))

    def weights(
        self,
        query: Float[Tensor, "batch query width"],
        keys: Heads,
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch head query key"]:
        """The attention weights of every head, by the plain formula."""
        _, weights = attend(self._split(self.query(query)), keys, keys, mask)
        return weights

    def _split(
        self, hidden: Float[Tensor, "batch length width"]
    ) -> Float[Tensor, "batch head length head_dim"]:
        # batch length (head head_dim) -> batch head length head_dim
        return hidden.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
