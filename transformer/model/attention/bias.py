"""What the queries of an attention may see, and what the distance to a key adds to its score.

A scope is made once a stack and handed to every layer. It does not know queries, keys or values;
the kernels read it as a whole (``dense_mask``, ``dense_bias``) or block by block.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from transformer.model.attention.masks import causal_mask
from transformer.model.attention.relative_positions import RelativeBias, RotaryPositions, Rotation
from transformer.model.attention.sparse_patterns import Pattern

Mask = Bool[Tensor, "#batch #head #query #key"]


@dataclass(frozen=True)
class AttentionBias:
    """How the queries of one attention stand to its keys.

    Attributes:
        mask: True where a query may attend: the padding of a batch, or any other mask.
        queries: Positions of the queries, where the rest depends on positions.
        keys: Positions of the keys, likewise.
        causal: A query sees no key that stands after it.
        pattern: A query sees what the pattern allows; None allows everything.
        bias: What the distance adds to the score.
        rotation: How the positions of the queries turn queries and new keys.
        unfilled: So many of the last keys are not there yet: room of a cache (causal only).
    """

    mask: Mask | None = None
    queries: Int[Tensor, " query"] | None = None
    keys: Int[Tensor, " key"] | None = None
    causal: bool = False
    pattern: Pattern | None = None
    bias: RelativeBias | None = None
    rotation: Rotation | None = None
    unfilled: int = 0
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def only_causal(self) -> bool:
        """Whether a position sees all up to itself, unhindered and unbiased: nothing else."""
        sparse = self.pattern is not None or self.bias is not None or self.mask is not None
        return self.causal and not sparse and self.queries is not None and self._square

    @property
    def _square(self) -> bool:
        assert self.queries is not None and self.keys is not None
        return len(self.queries) == len(self.keys)

    def sees(
        self, query: Int[Tensor, "*#shape"], key: Int[Tensor, "*#shape"]
    ) -> Bool[Tensor, "*shape"]:
        """Whether the position of a query may look at that of a key; the mask is apart."""
        before = key <= query
        seen = before if self.causal else torch.ones_like(before)
        return seen if self.pattern is None else seen & self.pattern(query, key)

    @property
    def dense_mask(self) -> Mask | None:
        """Where every query may attend; None: everywhere."""
        return self._once("dense_mask", self._make_dense_mask)

    @property
    def penalty(self) -> Float[Tensor, "#batch #head #query #key"] | None:
        """Mask and bias as one summand of the scores: -inf where a query may not look.

        None: nothing to add.
        """
        return self._once("penalty", self._make_penalty)

    @property
    def leaves_none_blind(self) -> bool:
        """Whether every query may attend to something."""
        return self._once("leaves_none_blind", self._make_leaves_none_blind)

    @property
    def dense_bias(self) -> Float[Tensor, "1 head query key"] | None:
        """The bias of every query and key."""
        return self._once("dense_bias", self._make_dense_bias)

    @property
    def block_mask(self) -> BlockMask:
        """Which blocks of keys each block of queries sees, as ``flex_attention`` wants it.

        Queries and keys must have positions, and the queries be the last of them.
        """
        made: BlockMask = self._once("block_mask", self._make_block_mask)
        return made

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        # functools.cached_property holds a lock before Python 3.12, which torch.compile cannot
        # trace.
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def _make_dense_mask(self) -> Mask | None:
        seen = self.mask
        if self.queries is None or self.keys is None:
            return seen
        # A single query is the last position, which sees all that is there.
        if self.causal and (len(self.queries) > 1 or self.unfilled):
            there = len(self.keys) - self.unfilled
            causal = causal_mask(len(self.queries), there, self.keys.device)
            causal = F.pad(causal, (0, self.unfilled))
            seen = causal if seen is None else seen & causal
        if self.pattern is not None:
            # query key -> 1 1 query key
            allowed = self.pattern(self.queries[:, None], self.keys[None, :])[None, None]
            seen = allowed if seen is None else seen & allowed
        return seen

    def _make_penalty(self) -> Float[Tensor, "#batch #head #query #key"] | None:
        mask, bias = self.dense_mask, self.dense_bias
        if mask is None:
            return bias
        hidden = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -math.inf)
        return hidden if bias is None else bias + hidden

    def _make_leaves_none_blind(self) -> bool:
        return self.dense_mask is None or bool(self.dense_mask.any(-1).all())

    def _make_dense_bias(self) -> Float[Tensor, "1 head query key"] | None:
        if self.bias is None or self.queries is None or self.keys is None:
            return None
        heads = torch.arange(self.bias.num_heads, device=self.keys.device)
        # head 1 1, 1 query key -> 1 head query key
        return self.bias(heads[:, None, None], (self.keys - self.queries[:, None])[None])[None]

    def _make_block_mask(self) -> BlockMask:
        assert self.queries is not None and self.keys is not None
        return create_block_mask(
            # Torch counts the arguments of a function, and would miscount those of a method.
            lambda b, h, q, k: self._sees_in_batch(b, h, q, k),
            None if self.mask is None else self.mask.size(0),
            None if self.mask is None else self.mask.size(1),
            len(self.queries),
            len(self.keys),
            device=self.keys.device,
        )

    def _sees_in_batch(self, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Whether the query at one index sees the key at another, in one row and head."""
        assert self.queries is not None and self.keys is not None
        seen = self.sees(query + (len(self.keys) - len(self.queries)), key)
        if self.mask is None:
            return seen
        rows, heads, queries, _ = self.mask.shape
        return seen & self.mask[row % rows, head % heads, query % queries, key]


class SelfAttentionBias(nn.Module):
    """Makes the scope of every self-attention of a stack; holds its pattern and its positions."""

    def __init__(
        self,
        *,
        causal: bool = False,
        pattern: Pattern | None = None,
        bias: RelativeBias | None = None,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.pattern = pattern
        self.bias = bias
        self.rotary = rotary

    def forward(
        self,
        length: int,
        start: int,
        mask: Mask | None,
        device: torch.device,
        *,
        room: int | None = None,
    ) -> AttentionBias:
        """The scope of the positions ``start`` to ``start + length`` over all up to there.

        Where a cache has ``room`` for more keys, these are hidden.
        """
        there = start + length
        keys = torch.arange(room or there, device=device)
        queries = keys[start:there]
        rotation = None if self.rotary is None else self.rotary(queries)
        unfilled = len(keys) - there
        return AttentionBias(
            mask, queries, keys, self.causal, self.pattern, self.bias, rotation, unfilled
        )
