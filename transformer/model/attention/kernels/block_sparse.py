"""Sparse attention by gathered blocks: a block of queries reads only blocks of keys it may see.

It works for any pattern. Time and memory, also of the gradient, grow with the number of visible
blocks. Written for the CPU; Zaheer et al. 2020, "Big Bird", appendix D.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.kernels.fused import attend_fused
from transformer.model.attention.scaled_dot_product import KeyHeads, QueryHeads
from transformer.model.attention.sparse_patterns import Pattern

BLOCK = 64
"""Positions of a block."""

GROUP = 32
"""Maximum number of blocks of keys gathered at once, unless one block of queries sees more."""


@dataclass(frozen=True)
class Group:
    """Blocks of queries that see equally many blocks of keys."""

    queries: Int[Tensor, " blocks"]
    keys: Int[Tensor, "blocks seen"]


def attend_blocks(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, context: AttentionContext, dropout: float
) -> QueryHeads:
    """Compute ``attend`` without hidden blocks; queries and keys are the positions from 0 on."""
    groups = visible_blocks(context.causal, context.pattern, -(-key.size(2) // BLOCK))
    blocks = tuple(_blocks(heads) for heads in (query, key, value))
    # Gathered keys are as large as several copies of all keys: the backward pass gathers again.
    parts = [
        checkpoint(_attend_group, *blocks, group, context, dropout, use_reentrant=False)
        for group in groups
    ]
    order = torch.cat([group.queries for group in groups]).argsort()
    attended = torch.cat(parts, dim=2)[:, :, order]
    # batch head blocks block head_dim -> batch head query head_dim
    return attended.flatten(2, 3)[:, :, : query.size(2)]


def _attend_group(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    group: Group,
    context: AttentionContext,
    dropout: float,
) -> Tensor:
    assert context.keys is not None
    query = query[:, :, group.queries]
    # batch head blocks seen block head_dim -> batch head blocks (seen block) head_dim
    key, value = (heads[:, :, group.keys].flatten(3, 4) for heads in (key, value))
    batch, _, blocks, _, _ = query.shape
    within = torch.arange(BLOCK, device=query.device)
    # blocks -> blocks block 1; blocks seen -> blocks 1 (seen block)
    rows = (group.queries[:, None] * BLOCK + within)[:, :, None]
    columns = (group.keys[:, :, None] * BLOCK + within).flatten(1)[:, None, :]
    length = len(context.keys)
    real = (rows < length) & (columns < length)
    rows, columns = rows.clamp(max=length - 1), columns.clamp(max=length - 1)
    seen = (context.sees(rows, columns) & real)[None, :, None]
    if context.mask is not None:
        mask = context.mask.expand(-1, -1, length, -1)
        # batch head blocks block keys -> batch blocks head block keys
        seen = seen & mask[:, :, rows, columns].movedim(2, 1)
    bias = None
    if context.bias is not None:
        heads = torch.arange(context.bias.num_heads, device=query.device)
        # head 1 1, blocks 1 block keys -> blocks head block keys -> (batch blocks) head block keys
        distance = (columns - rows)[:, None]
        bias = context.bias(heads[:, None, None], distance).repeat(batch, 1, 1, 1)
    # batch blocks 1 block keys -> (batch blocks) 1 block keys
    mask = seen.expand(batch, *seen.shape[1:]).flatten(0, 1)
    # batch head blocks block head_dim -> (batch blocks) head block head_dim
    query, key, value = (heads.transpose(1, 2).flatten(0, 1) for heads in (query, key, value))
    attended = attend_fused(query, key, value, mask, bias=bias, dropout=dropout)
    # (batch blocks) head block head_dim -> batch head blocks block head_dim
    return attended.unflatten(0, (batch, blocks)).transpose(1, 2)


@lru_cache(maxsize=256)
def visible_blocks(
    causal: bool, pattern: Pattern | None, count: int, block: int = BLOCK
) -> list[Group]:
    """Which of ``count`` blocks of keys each block of queries sees; found once for each length."""
    context = AttentionContext(causal=causal, pattern=pattern)
    groups = []
    # The cached tensors must serve training too.
    with torch.inference_mode(False):
        positions = torch.arange(count * block)
        by_count: dict[int, list[tuple[int, Tensor]]] = {}
        for number, rows in enumerate(positions.split(block)):
            seen = context.sees(rows[:, None], positions[None, :]).any(0)
            # key -> key_blocks block
            keys = seen.view(-1, block).any(1).nonzero().squeeze(1)
            by_count.setdefault(len(keys), []).append((number, keys))
        for seen_blocks, blocks in by_count.items():
            size = max(1, GROUP // max(1, seen_blocks))
            for start in range(0, len(blocks), size):
                numbers, visible = zip(*blocks[start : start + size], strict=True)
                groups.append(Group(torch.tensor(numbers), torch.stack(visible)))
    return groups


def _blocks(heads: Tensor) -> Tensor:
    padded = F.pad(heads, (0, 0, 0, -heads.size(2) % BLOCK))
    # batch head (blocks block) head_dim -> batch head blocks block head_dim
    return padded.unflatten(2, (-1, BLOCK))
