"""Full attention: torch's fused kernel, and plain products where they are faster on a CPU."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer.common.errors import InputError
from transformer.model.attention.attention_context import AttentionContext, prepare_dense
from transformer.model.attention.kernels.fused import attend_masked
from transformer.model.attention.scaled_dot_product import (
    KeyHeads,
    QueryHeads,
    eager,
    repeat_heads,
)

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


class GpuKernels(NamedTuple):
    """torch's kernels for some shapes of attention, in the order in which they are tried.

    Attributes:
        mask: "causal": a causal mask alone. "padded": a mask of keys alone, as of a batch.
        positions: Of queries and of keys, at least.
        kernels: Keys of ``BACKENDS``.
    """

    mask: Literal["causal", "padded"]
    positions: int
    kernels: tuple[str, ...]


USUAL = ("flash", "efficient", "math")
"""torch's own order without cuDNN, which plans for every new shape; flash takes no mask."""

GPU_KERNELS = (
    GpuKernels("causal", 129, USUAL),
    GpuKernels("causal", 0, ("efficient", "flash", "cudnn", "math")),
    GpuKernels("padded", 0, USUAL),
)
"""Measured on an H200 (benchmarks/gpu); the first that fits counts, and any other mask or bias has
the usual ones. cuDNN won with 512 padded positions of one shape; what it costs to plan for the many
shapes of a run has not been measured."""

FEW = 16
"""Plain products are faster than the fused kernel with at most 16 queries and at least 16 keys."""

SHORT = 64
"""Positions up to which plain products are faster than the fused kernel, forward and backward."""

VECTOR = 16
"""Keys per step of torch's softmax on a CPU; fewer are processed one by one."""


@dataclass(frozen=True)
class Sdpa:
    """torch's ``scaled_dot_product_attention``; "any" takes plain products where these are fast."""

    backend: str = "any"

    def __call__(
        self,
        query: QueryHeads,
        key: KeyHeads,
        value: KeyHeads,
        context: AttentionContext,
        dropout: float,
    ) -> QueryHeads:
        """Attend; raises InputError if the forced backend cannot compute this here."""
        context = prepare_sdpa(context, query.dtype)
        if self.backend == "any" and plain_is_faster(query, key, context, dropout):
            plain = attend_short if _every_query_sees(context, query.dtype) else eager
            return plain(query, key, value, context, dropout)
        try:
            with self._kernels(query, key, context):
                # A branch, because a compiled comparison of lengths is no bool.
                if context.only_causal:
                    return attend_masked(query, key, value, None, dropout=dropout, causal=True)
                additive = context.additive_mask(query.dtype)
                return attend_masked(query, key, value, additive, dropout=dropout)
        except RuntimeError as error:
            if "No viable backend" not in str(error) and "No available kernel" not in str(error):
                raise
            masked = "" if context.only_causal else ", a mask or bias"
            raise InputError(
                f"model.sdpa_backend={self.backend} cannot compute {query.dtype}, heads of width "
                f"{query.size(-1)}{masked} on {query.device.type}; set model.sdpa_backend=any"
            ) from error

    def _kernels(
        self, query: QueryHeads, key: KeyHeads, context: AttentionContext
    ) -> AbstractContextManager[Any]:
        if self.backend != "any":
            return sdpa_kernel(BACKENDS[self.backend])
        if query.device.type != "cuda":
            return nullcontext()
        kernels = gpu_kernels(context, query.size(2), key.size(2))
        if kernels == USUAL:
            return without_cudnn()
        return sdpa_kernel([BACKENDS[name] for name in kernels], set_priority=True)


def gpu_kernels(context: AttentionContext, queries: int, keys: int) -> tuple[str, ...]:
    """The kernels of ``GPU_KERNELS`` for an attention of so many queries and keys."""
    if context.only_causal:
        mask = "causal"
    elif context.mask is not None and not (context.causal or context.pattern or context.bias):
        mask = "padded"
    else:
        return USUAL
    for row in GPU_KERNELS:
        if row.mask == mask and queries >= row.positions and keys >= row.positions:
            return row.kernels
    return USUAL


def prepare_sdpa(
    context: AttentionContext, dtype: torch.dtype, training: bool = True
) -> AttentionContext:
    """Fill the mask of all pairs, unless a flag of torch's kernel replaces a causal mask."""
    if context.dense is not None or (context.only_causal and not _may_be_plain(context)):
        return context
    context = prepare_dense(context, dtype, training)
    return replace(context, additive=context.additive_mask(dtype))


def _may_be_plain(context: AttentionContext) -> bool:
    """Whether plain products may compute a causal mask; see ``plain_is_faster``."""
    assert context.keys is not None
    if context.keys.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    positions = len(context.keys)
    return positions <= SHORT if torch.is_grad_enabled() else positions == FEW


def _every_query_sees(context: AttentionContext, dtype: torch.dtype) -> bool:
    additive = context.additive_mask(dtype)
    return additive is None or additive.sees is None


def without_cudnn() -> AbstractContextManager[Any]:
    """Leave cuDNN out: on some GPUs torch would try it first, and it plans for every new shape."""
    if torch.compiler.is_compiling():
        return sdpa_kernel([kernel for name, kernel in BACKENDS.items() if name != "cudnn"])
    return _cudnn_off()


@contextmanager
def _cudnn_off() -> Iterator[None]:
    # torch.compile cannot trace this. sdpa_kernel takes 9 microseconds of the host, this takes 1.
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def plain_is_faster(
    query: QueryHeads, key: KeyHeads, context: AttentionContext, dropout: float
) -> bool:
    """Whether plain products are faster on a CPU (docs/performance.md, docs/decoding.md)."""
    if query.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if torch.is_grad_enabled():
        return max(query.size(2), key.size(2)) <= SHORT
    few = query.size(2) <= FEW <= key.size(2) and query.size(1) == key.size(1)
    return few and not dropout and _every_query_sees(context, query.dtype)


def attend_short(
    query: QueryHeads, key: KeyHeads, value: KeyHeads, context: AttentionContext, dropout: float
) -> QueryHeads:
    """The formula with 16 keys or more, for torch's softmax on a CPU; all queries see a key."""
    key, value = repeat_heads(query, key), repeat_heads(query, value)
    additive = context.additive_mask(query.dtype)
    missing = VECTOR - key.size(2)
    summand = None if additive is None else additive.summand
    if missing > 0:
        zeros = query.new_zeros(1, 1, 1, key.size(2), dtype=torch.float32)
        summand = zeros if summand is None else zeros + summand
        summand = F.pad(summand, (0, missing), value=-math.inf)
        key, value = (F.pad(heads, (0, 0, 0, missing)) for heads in (key, value))
    scores = query @ key.transpose(-2, -1)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    scale = query.size(-1) ** -0.5
    scores = scores * scale if summand is None else torch.add(summand, scores, alpha=scale)
    weights = scores.softmax(dim=-1).to(value.dtype)
    return F.dropout(weights, dropout) @ value
