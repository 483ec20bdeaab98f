"""What all layers of a stack share: mask, bias and rotation of their attention."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.attention.masks import (
    AdditiveMask,
    Bias,
    Mask,
    additive_mask,
    causal_mask,
)
from transformer.model.positions.alibi import AlibiBias
from transformer.model.positions.rotary import RotaryPositions, Rotation
from transformer.model.positions.t5_buckets import BucketBias

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

    from transformer.model.attention.sparse_patterns import Pattern

RelativeBias = AlibiBias | BucketBias
Positions = Int[Tensor, "*#shape"]


class Dense(NamedTuple):
    """Mask and bias of all pairs of a query and a key; None allows every key, or adds nothing."""

    mask: Mask | None
    bias: Bias | None


@dataclass(frozen=True)
class AttentionContext:
    """Mask, bias and rotation of one attention.

    The first attributes define them, by positions where they can. ``dense``, ``additive`` and
    ``blocks`` are the same as tensors: a stack computes once what its kernel reads
    (``Preparation``). A kernel computes for itself what is None.

    Attributes:
        mask: True where a query may attend: the padding of a batch, or any other mask.
        queries: Positions of the queries; None unless another attribute depends on positions.
        keys: Positions of the keys; None in the same case.
        causal: A query does not see later keys.
        pattern: Sparse pattern; None allows every key.
        bias: Bias of the scores by distance.
        rotation: Rotation of queries and new keys by the positions of the queries.
        unfilled: Number of last keys that are empty in a cache, and hidden (causal only).
        every_query_sees: The caller knows that every query may attend to some key.
        dense: Mask and bias of all pairs.
        additive: Their sum, for scores of one type.
        blocks: The visible blocks, as ``flex_attention`` reads them.
    """

    mask: Mask | None = None
    queries: Int[Tensor, " query"] | None = None
    keys: Int[Tensor, " key"] | None = None
    causal: bool = False
    pattern: "Pattern | None" = None
    bias: RelativeBias | None = None
    rotation: Rotation | None = None
    unfilled: int = 0
    every_query_sees: bool = False
    dense: Dense | None = None
    additive: AdditiveMask | None = None
    blocks: "BlockMask | None" = None

    @property
    def only_causal(self) -> bool:
        """Whether there is only a causal mask, and no cached keys."""
        if not self.causal or self.queries is None or self.keys is None:
            return False
        if self.mask is not None or self.pattern is not None or self.bias is not None:
            return False
        return len(self.queries) == len(self.keys)

    def sees(self, query: Positions, key: Positions) -> Bool[Tensor, "*shape"]:
        """Whether a position may attend to another position, without ``mask``."""
        before = key <= query
        seen = before if self.causal else torch.ones_like(before)
        return seen if self.pattern is None else seen & self.pattern(query, key)

    def dense_mask(self) -> Mask | None:
        """The keys that every query may attend to; None is all keys."""
        if self.dense is not None:
            return self.dense.mask
        seen = self.mask
        if self.queries is None or self.keys is None:
            return seen
        # A single query is the last position, which sees all keys. Compiled code masks it all the
        # same, so that it is not compiled twice.
        hides_keys = len(self.queries) > 1 or torch.compiler.is_compiling() or self.unfilled
        if self.causal and hides_keys:
            filled = len(self.keys) - self.unfilled
            causal = causal_mask(len(self.queries), filled, self.keys.device)
            causal = F.pad(causal, (0, self.unfilled))
            seen = causal if seen is None else seen & causal
        if self.pattern is not None:
            # query key -> 1 1 query key
            allowed = self.pattern(self.queries[:, None], self.keys[None, :])[None, None]
            seen = allowed if seen is None else seen & allowed
        return seen

    def dense_bias(self) -> Bias | None:
        """The bias of every query and key; None adds nothing."""
        if self.dense is not None:
            return self.dense.bias
        if self.bias is None or self.queries is None or self.keys is None:
            return None
        heads = torch.arange(self.bias.num_heads, device=self.keys.device)
        # head 1 1, 1 query key -> 1 head query key
        return self.bias(heads[:, None, None], (self.keys - self.queries[:, None])[None])[None]

    def additive_mask(self, dtype: torch.dtype) -> AdditiveMask | None:
        """Mask and bias as one summand of scores of this type; None adds nothing."""
        if self.additive is not None:
            return self.additive
        # Without a mask of its own, a query attends to itself.
        every_query_sees = self.every_query_sees or self.mask is None
        return additive_mask(self.dense_mask(), self.dense_bias(), dtype, every_query_sees)

    def rotate(
        self, heads: Float[Tensor, "batch head length head_dim"]
    ) -> Float[Tensor, "batch head length head_dim"]:
        """Queries or keys of self-attention, rotated if the positions are rotary."""
        return heads if self.rotation is None else self.rotation(heads)

    def select(self, sentences: Int[Tensor, " kept"]) -> "AttentionContext":
        """The context of these sentences alone, of a cross-attention."""
        assert self.mask is not None
        mask = self.mask.index_select(0, sentences)
        dense = None if self.dense is None else Dense(mask, None)
        if self.additive is None:
            return replace(self, mask=mask, dense=dense)
        summand, sees = self.additive
        sees = None if sees is None else sees.index_select(0, sentences)
        additive = AdditiveMask(summand.index_select(0, sentences), sees)
        return replace(self, mask=mask, dense=dense, additive=additive)


Preparation = Callable[[AttentionContext, torch.dtype, bool], AttentionContext]
"""Fills what a kernel reads of a context, for scores of this type, in training or not."""


def prepare_dense(context: AttentionContext, _: torch.dtype, __: bool) -> AttentionContext:
    """Fill mask and bias of all pairs."""
    return replace(context, dense=Dense(context.dense_mask(), context.dense_bias()))


class StackContext(nn.Module):
    """Pattern, positions and kernel of a stack; makes the contexts of a forward pass."""

    def __init__(
        self,
        *,
        causal: bool = False,
        pattern: "Pattern | None" = None,
        bias: RelativeBias | None = None,
        rotary: RotaryPositions | None = None,
        prepare: Preparation | None = None,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.pattern = pattern
        self.bias = bias
        self.rotary = rotary
        self.prepare = prepare

    def forward(
        self,
        length: int,
        start: int,
        mask: Mask | None,
        device: torch.device,
        *,
        dtype: torch.dtype = torch.float32,
        room: int | None = None,
    ) -> AttentionContext:
        """Self-attention of ``length`` queries from ``start`` on, over a cache of this room."""
        end = start + length
        keys = torch.arange(room or end, device=device)
        queries = keys[start:end]
        rotation = None if self.rotary is None else self.rotary(queries)
        context = AttentionContext(
            mask,
            queries,
            keys,
            causal=self.causal,
            pattern=self.pattern,
            bias=self.bias,
            rotation=rotation,
            unfilled=len(keys) - end,
            # A sentence of a training batch has a token, to the left of its padding.
            every_query_sees=self._trusts_batches(device) and self.pattern is None,
        )
        return self._prepared(context, dtype)

    def at(self, position: Int[Tensor, " 1"], room: int, dtype: torch.dtype) -> AttentionContext:
        """Self-attention of one query over a cache of this room; the host reads no position."""
        keys = torch.arange(room, device=position.device)
        # key -> 1 1 1 key
        seen = (keys <= position)[None, None, None]
        context = AttentionContext(
            seen,
            position,
            keys,
            causal=self.causal,
            pattern=self.pattern,
            bias=self.bias,
            rotation=None if self.rotary is None else self.rotary(position),
            # A query sees itself.
            every_query_sees=True,
        )
        return self._prepared(context, dtype)

    def cross(self, mask: Mask, dtype: torch.dtype) -> AttentionContext:
        """Cross-attention to the source tokens of this mask."""
        context = AttentionContext(mask, every_query_sees=self._trusts_batches(mask.device))
        return self._prepared(context, dtype)

    def _trusts_batches(self, device: torch.device) -> bool:
        """Whether each sentence is taken to have a token; on a CPU the mask is checked, cheaply."""
        return self.training and device.type != "cpu"

    def _prepared(self, context: AttentionContext, dtype: torch.dtype) -> AttentionContext:
        return context if self.prepare is None else self.prepare(context, dtype, self.training)
