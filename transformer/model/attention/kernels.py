"""Kernels that compute the same as ``multi_head.eager``, faster or in less memory.

They are torch's fused kernels, sparse ones and plain products, and the choice between them.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from transformer.common.errors import InputError
from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.multi_head import (
    KeyHeads,
    QueryHeads,
    attend_fused,
    eager,
    split_query_heads,
)

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}

FEW = 16
"""Plain products are faster than the fused kernel with at most 16 queries and at least 16 keys."""

SHORT = 64
"""Positions up to which plain products are faster than the fused kernel, forward and backward."""

VECTOR = 16
"""Keys per step of torch's softmax on a CPU; fewer are processed one by one."""

SPARSE_FROM = 1024
"""Keys from which skipping blocks pays; below, one masked product is faster (docs/attention.md)."""


@dataclass(frozen=True)
class Sdpa:
    """torch's ``scaled_dot_product_attention``; ``backend`` forces one of its kernels.

    With "any", plain products replace it where they are faster on a CPU: for few queries, and in
    training on short sentences.
    """

    backend: str = "any"

    def __call__(
        self,
        query: QueryHeads,
        key: KeyHeads,
        value: KeyHeads,
        attention_bias: AttentionBias,
        dropout: float,
    ) -> QueryHeads:
        """Attend; raises InputError if the forced backend cannot compute this here."""
        if self.backend == "any" and plain_is_faster(query, key, attention_bias, dropout):
            plain = attend_short if attention_bias.every_query_sees else eager
            return plain(query, key, value, attention_bias, dropout)
        try:
            with nullcontext() if self.backend == "any" else sdpa_kernel(BACKENDS[self.backend]):
                if attention_bias.only_causal:
                    return attend_fused(query, key, value, dropout=dropout, causal=True)
                hidden, bias = attention_bias.hidden_keys(query.dtype), attention_bias.dense_bias
                return attend_fused(query, key, value, hidden, bias=bias, dropout=dropout)
        except RuntimeError as error:
            if "No viable backend" not in str(error) and "No available kernel" not in str(error):
                raise
            unmasked = attention_bias.only_causal or attention_bias.penalty is None
            rest = ", ".join(name for name in ("any", *BACKENDS) if name != self.backend)
            raise InputError(
                f"model.sdpa_backend={self.backend} cannot compute {query.dtype}, heads of width "
                f"{query.size(-1)}{'' if unmasked else ', a mask or bias'} on {query.device.type}; "
                f"choose another of {rest}"
            ) from error


def plain_is_faster(
    query: QueryHeads, key: KeyHeads, attention_bias: AttentionBias, dropout: float
) -> bool:
    """Whether plain products are the fastest: on a CPU, in training on short sentences.

    Likewise in a decoding step over enough keys. torch's fused kernel computes each sentence and
    head separately there (docs/performance.md, docs/decoding.md).
    """
    if query.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if torch.is_grad_enabled():
        return max(query.size(2), key.size(2)) <= SHORT
    few = query.size(2) <= FEW <= key.size(2) and query.size(1) == key.size(1)
    return few and not dropout and attention_bias.every_query_sees


def attend_short(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, attention_bias: AttentionBias, dropout: float
) -> QueryHeads:
    """The formula in the form that torch's softmax computes fast; each query must see a key.

    On a CPU that is float32 and at least 16 keys: hidden keys are added up to that number
    (docs/performance.md).
    """
    key, value = split_query_heads(query, key), split_query_heads(query, value)
    penalty, missing = attention_bias.penalty, VECTOR - key.size(2)
    if missing > 0:
        zeros = query.new_zeros(1, 1, 1, key.size(2), dtype=torch.float32)
        penalty = zeros if penalty is None else zeros + penalty
        penalty = F.pad(penalty, (0, missing), value=-math.inf)
        key, value = (F.pad(heads, (0, 0, 0, missing)) for heads in (key, value))
    scores = query @ key.transpose(-2, -1)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    scale = query.size(-1) ** -0.5
    scores = scores * scale if penalty is None else torch.add(penalty, scores, alpha=scale)
    weights = scores.softmax(dim=-1).to(value.dtype)
    return F.dropout(weights, dropout) @ value


def flex(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, attention_bias: AttentionBias, dropout: float
) -> QueryHeads:
    """Read only the blocks of keys that a block of queries may see.

    On a GPU by torch's ``flex_attention`` (Dong et al. 2024, "Flex Attention"), compiled, without
    dropout; on a CPU, where that has no gradient, by block_sparse.py. Raises InputError if torch
    cannot compute this on a GPU.
    """
    if attention_bias.queries is None or query.size(2) != key.size(2):
        # Cross-attention has no pattern; a step of decoding has too few queries to skip blocks.
        return Sdpa()(query, key, value, attention_bias, dropout)
    if query.device.type == "cpu":
        from transformer.model.attention.block_sparse import attend_blocks

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
    # A query that may attend to nothing yields zeros here, too.
    attended: QueryHeads = attention(
        query,
        key,
        value,
        score_mod=bias and (lambda score, b, h, q, k: score + bias(h, k - q - first)),
        block_mask=attention_bias.block_mask,
        enable_gqa=key.size(1) != query.size(1),
    )
    return attended


@cache
def compiled_flex_attention() -> Callable[..., Any]:
    """``flex_attention`` compiled for any length."""
    return torch.compile(flex_attention, dynamic=True)


def auto(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, attention_bias: AttentionBias, dropout: float
) -> QueryHeads:
    """``flex`` for a sparse pattern over a long sequence, if it can compute it, else ``sdpa``."""
    long = key.size(2) >= SPARSE_FROM and query.size(2) == key.size(2)
    cannot = query.device.type != "cpu" and (dropout > 0 or _flex_cannot(query, key) is not None)
    if attention_bias.pattern is not None and long and not cannot:
        return flex(query, key, value, attention_bias, dropout)
    return Sdpa()(query, key, value, attention_bias, dropout)
