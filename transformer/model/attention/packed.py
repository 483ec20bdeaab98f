"""Attention of packed sentences: each attends within its own segment (common/segments.py).

On a GPU by torch's ``varlen_attn``; elsewhere by a kernel for padded rows, one for each sentence.
Does not know who packed the sentences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.common.segments import Segments

Queries = Float[Tensor, "batch head query head_dim"]
Keys = Float[Tensor, "batch kv_head key head_dim"]
Heads = Float[Tensor, "batch some_head length head_dim"]
Rows = Float[Tensor, "sentence some_head width head_dim"]
Tokens = Float[Tensor, "token some_head head_dim"]

DTYPES = (torch.bfloat16, torch.float16)
"""Of FlashAttention."""

MAX_WIDTH = 256
"""Of the heads in FlashAttention, a multiple of 8."""


@dataclass(frozen=True)
class PackedSentences:
    """Where the sentences of an attention lie.

    Attributes:
        causal: A query sees no key after itself.
        flash: Whether the device runs FlashAttention.
    """

    queries: Segments
    keys: Segments
    causal: bool
    flash: bool

    @classmethod
    def of(cls, queries: Segments, keys: Segments, *, causal: bool) -> "PackedSentences":
        """Let each segment of queries attend to the segment of keys of the same number."""
        return cls(queries, keys, causal, runs_flash_attention(keys.offsets.device))


def runs_flash_attention(device: torch.device) -> bool:
    """Whether it is a GPU of the Ampere generation or later, which FlashAttention needs."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def attend_packed(
    query: Queries,
    key: Keys,
    value: Keys,
    packed: PackedSentences,
    attend_rows: Callable[[Rows, Rows, Rows], Rows],
) -> Queries:
    """Attend within segments; ``attend_rows`` attends in padded rows if FlashAttention cannot."""
    width = query.size(-1)
    if packed.flash and query.dtype in DTYPES and width % 8 == 0 and width <= MAX_WIDTH:
        return _attend_varlen(query, key, value, packed)
    queries = _to_rows(query, packed.queries)
    keys, values = _to_rows(key, packed.keys), _to_rows(value, packed.keys)
    tokens = _to_tokens(attend_rows(queries, keys, values))
    return _to_heads(tokens.index_select(0, packed.queries.cells), query)


def _attend_varlen(query: Queries, key: Keys, value: Keys, packed: PackedSentences) -> Queries:
    """FlashAttention over segments (Dao 2023, "FlashAttention-2")."""
    from torch.nn.attention.varlen import varlen_attn

    grouped: dict[str, Any] = {"enable_gqa": True} if key.size(1) != query.size(1) else {}
    tokens: Any = varlen_attn(
        _to_tokens(query),
        _to_tokens(key),
        _to_tokens(value),
        packed.queries.offsets,
        packed.keys.offsets,
        packed.queries.longest,
        packed.keys.longest,
        window_size=(-1, 0 if packed.causal else -1),
        **grouped,
    )
    return _to_heads(tokens, query)


def _to_tokens(heads: Heads) -> Tokens:
    # batch head length head_dim -> (batch length) head head_dim
    return heads.transpose(1, 2).flatten(0, 1)


def _to_heads(tokens: Tokens, like: Heads) -> Heads:
    # (batch length) head head_dim -> batch head length head_dim
    return tokens.unflatten(0, (like.size(0), like.size(2))).transpose(1, 2)


def _to_rows(heads: Heads, segments: Segments) -> Rows:
    rows = _to_tokens(heads).index_select(0, segments.padded.flatten())
    # (sentence width) head head_dim -> sentence head width head_dim
    return rows.unflatten(0, segments.padded.shape).transpose(1, 2)
