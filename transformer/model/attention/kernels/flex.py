"""Sparse attention: computes only the blocks of keys that a block of queries may see.

On a GPU it calls torch's ``flex_attention`` (Dong et al. 2024, "Flex Attention"). This function
has no gradient on a CPU; there it calls block_sparse.py.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from transformer.common.errors import InputError
from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.kernels.sdpa import Sdpa
from transformer.model.attention.scaled_dot_product import KeyHeads, QueryHeads

SPARSE_FROM = 1024
"""With fewer keys, one masked product is faster than skipped blocks (docs/attention.md)."""


def auto(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, attention_bias: AttentionBias, dropout: float
) -> QueryHeads:
    """``flex`` for a sparse pattern over a long sequence if torch can compute it, else ``sdpa``."""
    long = key.size(2) >= SPARSE_FROM and query.size(2) == key.size(2)
    cannot = query.device.type != "cpu" and (dropout > 0 or _flex_cannot(query, key) is not None)
    if attention_bias.pattern is not None and long and not cannot:
        return flex(query, key, value, attention_bias, dropout)
    return Sdpa()(query, key, value, attention_bias, dropout)


def flex(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, attention_bias: AttentionBias, dropout: float
) -> QueryHeads:
    """Attend to only the visible blocks of keys; InputError if torch cannot on a GPU."""
    if attention_bias.queries is None or query.size(2) != key.size(2):
        # Cross-attention has no pattern; a decoding step has too few queries to skip blocks.
        return Sdpa()(query, key, value, attention_bias, dropout)
    if query.device.type == "cpu":
        from transformer.model.attention.kernels.block_sparse import attend_blocks

        return attend_blocks(query, key, value, attention_bias, dropout)
    if reason := _flex_cannot(query, key):
        raise InputError(f"model.attention=flex cannot compute {reason}; choose sdpa")
    return attend_flex(query, key, value, attention_bias, compiled_flex_attention())


def _flex_cannot(query: QueryHeads, key: KeyHeads) -> str | None:
    """The property of these heads that torch's ``flex_attention`` cannot compute on a GPU."""
    group = query.size(1) // key.size(1)
    if group & (group - 1):
        return f"{group} heads of queries to one of keys on a GPU, only a power of two"
    few = query.size(-1) < 16
    return f"heads of width {query.size(-1)} on a GPU, only from 16 on" if few else None


def attend_flex(
    query: QueryHeads,
    key: KeyHeads,
    value: KeyHeads,
    attention_bias: AttentionBias,
    attention: Callable[..., Any],
) -> QueryHeads:
    """Compute ``attend`` under an attention bias by ``attention``, compiled or plain."""
    bias, first = attention_bias.bias, key.size(2) - query.size(2)
    # The result of a query that may attend to nothing is zero here, too.
    return attention(
        query,
        key,
        value,
        score_mod=bias and (lambda score, b, h, q, k: score + bias(h, k - q - first)),
        block_mask=attention_bias.once("block_mask", lambda: _block_mask(attention_bias)),
        enable_gqa=key.size(1) != query.size(1),
    )


@cache
def compiled_flex_attention() -> Callable[..., Any]:
    """``flex_attention`` compiled for any length."""
    return torch.compile(flex_attention, dynamic=True)


def _block_mask(attention_bias: AttentionBias) -> BlockMask:
    assert attention_bias.queries is not None and attention_bias.keys is not None
    queries, keys, mask = len(attention_bias.queries), len(attention_bias.keys), attention_bias.mask
    batch, heads = (None, None) if mask is None else mask.shape[:2]

    def sees(item: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = attention_bias.sees(query + (keys - queries), key)
        if mask is None:
            return seen
        return seen & mask[item % len(mask), head % mask.size(1), query % mask.size(2), key]

    # torch counts the arguments of a function, which a wrapper that checks shapes would hide.
    return create_block_mask(
        lambda b, h, q, k: sees(b, h, q, k),
        *(batch, heads, queries, keys),
        device=attention_bias.keys.device,
    )
