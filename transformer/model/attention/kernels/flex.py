"""Sparse attention: computes only the blocks of keys that a block of queries may see.

On a GPU it calls torch's ``flex_attention`` (Dong et al. 2024, "Flex Attention"). This function
has no gradient on a CPU; there it calls block_sparse.py.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from transformer.common.errors import InputError
from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.kernels.sdpa import Sdpa, prepare_sdpa
from transformer.model.attention.scaled_dot_product import KeyHeads, QueryHeads

SPARSE_FROM = 1024
"""With fewer keys, a masked product is faster than skipped blocks: benchmarks/model/options.md."""


def auto(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, context: AttentionContext, dropout: float
) -> QueryHeads:
    """``flex`` for a sparse pattern over a long sequence if torch can compute it, else ``sdpa``."""
    group = query.size(1) // key.size(1)
    if context.dense is None and _skips_blocks(context, dropout, group, query.size(-1)):
        return flex(query, key, value, context, dropout)
    return Sdpa()(query, key, value, context, dropout)


def flex(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, context: AttentionContext, dropout: float
) -> QueryHeads:
    """Attend to only the visible blocks of keys; InputError if torch cannot on a GPU."""
    if not _has_blocks(context):
        return Sdpa()(query, key, value, context, dropout)
    if query.device.type == "cpu":
        from transformer.model.attention.kernels.block_sparse import attend_blocks

        return attend_blocks(query, key, value, context, dropout)
    unsupported = _flex_cannot(query.size(1) // key.size(1), query.size(-1))
    if unsupported is not None:
        raise InputError(f"model.attention=flex cannot compute {unsupported}; choose sdpa")
    return attend_flex(query, key, value, context, compiled_flex_attention())


def prepare_flex(context: AttentionContext, dtype: torch.dtype, training: bool) -> AttentionContext:
    """Fill what ``flex`` reads."""
    if not _has_blocks(context):
        return prepare_sdpa(context, dtype, training)
    assert context.keys is not None
    # A CPU reads the pattern itself.
    on_cpu = context.keys.device.type == "cpu"
    return context if on_cpu else replace(context, blocks=_block_mask(context))


def prepare_auto(
    context: AttentionContext,
    dtype: torch.dtype,
    training: bool,
    *,
    dropout: float,
    group: int,
    width: int,
) -> AttentionContext:
    """Fill what ``auto`` reads; ``group`` query heads of this width share a head of keys."""
    skips = _skips_blocks(context, dropout if training else 0.0, group, width)
    return (prepare_flex if skips else prepare_sdpa)(context, dtype, training)


def _has_blocks(context: AttentionContext) -> bool:
    """Whether blocks can be skipped: not in cross-attention, nor in a decoding step."""
    if context.queries is None or context.keys is None:
        return False
    return len(context.queries) == len(context.keys)


def _skips_blocks(context: AttentionContext, dropout: float, group: int, width: int) -> bool:
    """Whether skipping blocks pays, and torch can compute it."""
    if context.pattern is None or not _has_blocks(context):
        return False
    assert context.keys is not None
    cannot = dropout > 0 or _flex_cannot(group, width) is not None
    on_gpu = context.keys.device.type != "cpu"
    return len(context.keys) >= SPARSE_FROM and not (on_gpu and cannot)


def _flex_cannot(group: int, width: int) -> str | None:
    """The property of heads that torch's ``flex_attention`` cannot compute on a GPU."""
    if group & (group - 1):
        return f"{group} heads of queries to one of keys on a GPU, only a power of two"
    return f"heads of width {width} on a GPU, only from 16 on" if width < 16 else None


def attend_flex(
    query: QueryHeads,
    key: KeyHeads,
    value: KeyHeads,
    context: AttentionContext,
    attention: Callable[..., Any],
) -> QueryHeads:
    """Compute ``attend`` under an attention bias by ``attention``, compiled or plain."""
    bias = context.bias
    first = key.size(2) - query.size(2)
    # The result of a query that may attend to nothing is zero here, too.
    return attention(
        query,
        key,
        value,
        score_mod=bias and (lambda score, b, h, q, k: score + bias(h, k - q - first)),
        block_mask=_block_mask(context) if context.blocks is None else context.blocks,
        enable_gqa=key.size(1) != query.size(1),
    )


@cache
def compiled_flex_attention() -> Callable[..., Any]:
    """``flex_attention`` compiled for any length."""
    return torch.compile(flex_attention, dynamic=True)


def _block_mask(context: AttentionContext) -> BlockMask:
    assert context.queries is not None and context.keys is not None
    queries = len(context.queries)
    keys = len(context.keys)
    mask = context.mask

    def sees(item: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = context.sees(query + (keys - queries), key)
        if mask is None:
            return seen
        return seen & mask[item % len(mask), head % mask.size(1), query % mask.size(2), key]

    # torch counts the arguments of a function, which a wrapper that checks shapes would hide.
    return create_block_mask(
        lambda b, h, q, k: sees(b, h, q, k),
        None if mask is None else mask.size(0),
        None if mask is None else mask.size(1),
        queries,
        keys,
        device=context.keys.device,
    )
