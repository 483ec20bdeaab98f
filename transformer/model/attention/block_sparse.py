"""Sparse attention by gathered blocks: a block of queries reads only blocks of keys it may see.

It works for any pattern. Time and memory, also of the gradient, grow with the number of visible
blocks, which are found once for each length. Written for the CPU; Zaheer et al. 2020, "Big Bird",
appendix D.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from transformer.model.attention.bias import AttentionBias, Mask
from transformer.model.attention.multi_head import KeyHeads, QueryHeads, attend_fused
from transformer.model.attention.sparse_patterns import Pattern

BLOCK = 64
"""Positions of a block."""

GROUP = 32
"""Limit of the blocks of keys gathered at once, unless one block of queries sees more."""


@dataclass(frozen=True)
class Group:
    """Blocks of queries that see equally many blocks of keys."""

    queries: Int[Tensor, " blocks"]
    keys: Int[Tensor, "blocks seen"]


def attend_blocks(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, attention_bias: AttentionBias, dropout: float
) -> QueryHeads:
    """Compute ``attend`` under an attention bias, without the hidden blocks.

    Queries and keys must be the same positions, from the first on.
    """
    groups = visible_blocks(attention_bias.causal, attention_bias.pattern, -(-key.size(2) // BLOCK))
    blocks = tuple(_blocks(heads) for heads in (query, key, value))
    # Gathered keys are as large as several copies of all keys: the backward pass gathers again.
    parts = [
        checkpoint(_attend_group, *blocks, group, attention_bias, dropout, use_reentrant=False)
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
    attention_bias: AttentionBias,
    dropout: float,
) -> Tensor:
    """Attend within one group: each block of queries with its own keys, all blocks at once."""
    assert attention_bias.queries is not None and attention_bias.keys is not None
    query = query[:, :, group.queries]
    # batch head blocks seen block head_dim -> batch head blocks (seen block) head_dim
    key, value = (heads[:, :, group.keys].flatten(3, 4) for heads in (key, value))
    batch, _, blocks, block, _ = query.shape
    within = torch.arange(block, device=query.device)
    # blocks -> blocks block 1; blocks seen -> blocks 1 (seen block)
    rows = (group.queries[:, None] * block + within)[:, :, None]
    columns = (group.keys[:, :, None] * block + within).flatten(1)[:, None, :]
    real = (rows < len(attention_bias.queries)) & (columns < len(attention_bias.keys))
    rows = rows.clamp(max=len(attention_bias.queries) - 1)
    columns = columns.clamp(max=len(attention_bias.keys) - 1)
    indices = attention_bias.queries[rows], attention_bias.keys[columns]
    seen = (attention_bias.sees(*indices) & real)[None, :, None]
    if attention_bias.mask is not None:
        seen = seen & _gathered(attention_bias.mask, rows, columns)
    bias = None
    if attention_bias.bias is not None:
        heads = torch.arange(attention_bias.bias.num_heads, device=query.device)
        # head 1 1, blocks 1 block keys -> blocks head block keys -> (batch blocks) head block keys
        distance = (indices[1] - indices[0])[:, None]
        bias = attention_bias.bias(heads[:, None, None], distance).repeat(batch, 1, 1, 1)
    # batch blocks 1 block keys -> (batch blocks) 1 block keys
    mask = seen.expand(batch, *seen.shape[1:]).flatten(0, 1)
    # batch head blocks block head_dim -> (batch blocks) head block head_dim
    query, key, value = (heads.transpose(1, 2).flatten(0, 1) for heads in (query, key, value))
    attended = attend_fused(query, key, value, mask, bias=bias, dropout=dropout)
    # (batch blocks) head block head_dim -> batch head blocks block head_dim
    return attended.unflatten(0, (batch, blocks)).transpose(1, 2)


def _gathered(mask: Mask, rows: Tensor, columns: Tensor) -> Bool[Tensor, "_ blocks _ _ keys"]:
    """The part of a dense mask that each block of queries needs."""
    rows = rows if mask.size(2) > 1 else torch.zeros_like(rows)
    # batch head blocks block keys -> batch blocks head block keys
    return mask[:, :, rows, columns].movedim(2, 1)


@lru_cache(maxsize=256)
def visible_blocks(
    causal: bool, pattern: Pattern | None, count: int, block: int = BLOCK
) -> list[Group]:
    """Which of ``count`` blocks of keys each block of queries sees."""
    attention_bias = AttentionBias(causal=causal, pattern=pattern)
    # The cached tensors must serve training too.
    with torch.inference_mode(False):
        return list(_groups(_seen_blocks(attention_bias, count, block)))


def _groups(seen_blocks: Iterable[Tensor]) -> Iterator[Group]:
    by_count: dict[int, list[tuple[int, Tensor]]] = {}
    for number, seen in enumerate(seen_blocks):
        keys = seen.nonzero().squeeze(1)
        by_count.setdefault(len(keys), []).append((number, keys))
    for count, blocks in by_count.items():
        size = max(1, GROUP // max(1, count))
        for start in range(0, len(blocks), size):
            numbers, visible = zip(*blocks[start : start + size], strict=True)
            yield Group(torch.tensor(numbers), torch.stack(visible))


def _seen_blocks(
    attention_bias: AttentionBias, count: int, block: int
) -> Iterator[Bool[Tensor, " key_blocks"]]:
    """For each block of queries, which blocks of keys hold one that it sees."""
    positions = torch.arange(count * block)
    for rows in positions.split(block):
        seen = attention_bias.sees(rows[:, None], positions[None, :]).any(0)
        # key -> key_blocks block
        yield seen.view(-1, block).any(1)


def _blocks(heads: Tensor) -> Tensor:
    """Cut the positions into blocks, the last one filled up with zeros."""
    padded = F.pad(heads, (0, 0, 0, -heads.size(2) % BLOCK))
    # batch head (blocks block) head_dim -> batch head blocks block head_dim
    return padded.unflatten(2, (-1, BLOCK))
