"""What all layers of a stack share: mask, sparse pattern and relative positions."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.attention.masks import Mask, causal_mask
from transformer.model.positions.alibi import AlibiBias
from transformer.model.positions.rotary import RotaryPositions, Rotation
from transformer.model.positions.t5_buckets import BucketBias

if TYPE_CHECKING:
    from transformer.model.attention.sparse_patterns import Pattern

RelativeBias = AlibiBias | BucketBias
Positions = Int[Tensor, "*#shape"]
T = TypeVar("T")


def _once(make: Callable[["AttentionBias"], T]) -> T:
    """A property computed once: torch.compile cannot trace that of functools before 3.12."""

    def get(self: "AttentionBias") -> T:
        return self.once(make.__name__, lambda: make(self))

    return cast(T, property(get, doc=make.__doc__))


@dataclass(frozen=True)
class AttentionBias:
    """Mask, bias and rotation of one attention.

    Attributes:
        mask: True where a query may attend: the padding of a batch, or any other mask.
        queries: Positions of the queries; None unless another attribute depends on positions.
        keys: Positions of the keys; None in the same case.
        causal: A query does not see later keys.
        pattern: Sparse pattern; None allows every key.
        bias: Bias of the scores by distance.
        rotation: Rotation of queries and new keys by the positions of the queries.
        unfilled: Number of last keys that are empty in a cache, and hidden (causal only).
        no_row_empty: The caller knows that every query may attend to some key.
    """

    mask: Mask | None = None
    queries: Int[Tensor, " query"] | None = None
    keys: Int[Tensor, " key"] | None = None
    causal: bool = False
    pattern: "Pattern | None" = None
    bias: RelativeBias | None = None
    rotation: Rotation | None = None
    unfilled: int = 0
    no_row_empty: bool = False
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def only_causal(self) -> bool:
        """Whether there is only a causal mask, and no cached keys."""
        if not self.causal or self.queries is None or self.keys is None:
            return False
        more = self.mask is not None or self.pattern is not None or self.bias is not None
        return not more and len(self.queries) == len(self.keys)

    def sees(self, query: Positions, key: Positions) -> Bool[Tensor, "*shape"]:
        """Whether a position may attend to another position, without ``mask``."""
        before = key <= query
        seen = before if self.causal else torch.ones_like(before)
        return seen if self.pattern is None else seen & self.pattern(query, key)

    @_once
    def dense_mask(self) -> Mask | None:
        """The keys that every query may attend to; None is all keys."""
        seen = self.mask
        if self.queries is None or self.keys is None:
            return seen
        # A single query is the last position, which sees all keys. Compiled code masks it all the
        # same, so that it is not compiled twice.
        several = len(self.queries) > 1 or torch.compiler.is_compiling() or self.unfilled
        if self.causal and several:
            filled = len(self.keys) - self.unfilled
            causal = causal_mask(len(self.queries), filled, self.keys.device)
            causal = F.pad(causal, (0, self.unfilled))
            seen = causal if seen is None else seen & causal
        if self.pattern is not None:
            # query key -> 1 1 query key
            allowed = self.pattern(self.queries[:, None], self.keys[None, :])[None, None]
            seen = allowed if seen is None else seen & allowed
        return seen

    @_once
    def dense_bias(self) -> Float[Tensor, "1 head query key"] | None:
        if self.bias is None or self.queries is None or self.keys is None:
            return None
        heads = torch.arange(self.bias.num_heads, device=self.keys.device)
        # head 1 1, 1 query key -> 1 head query key
        return self.bias(heads[:, None, None], (self.keys - self.queries[:, None])[None])[None]

    @_once
    def every_query_sees(self) -> bool:
        """Whether every query may attend to some key: without a mask, to itself."""
        return self.mask is None or self.dense_mask is None or bool(self.dense_mask.any(-1).all())

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Make something once, and keep it under its name."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def rotate(
        self, heads: Float[Tensor, "batch head length head_dim"]
    ) -> Float[Tensor, "batch head length head_dim"]:
        """Queries or keys of self-attention, rotated if the positions are rotary."""
        return heads if self.rotation is None else self.rotation(heads)

    def select(self, sentences: Int[Tensor, " kept"]) -> "AttentionBias":
        assert self.mask is not None
        selected = replace(self, mask=self.mask.index_select(0, sentences))
        if self._made.get("every_query_sees"):
            selected._made["every_query_sees"] = True
        return selected


class SelfAttentionBias(nn.Module):
    """Pattern and positions of a stack; makes the ``AttentionBias`` of its self-attention."""

    def __init__(
        self,
        *,
        causal: bool = False,
        pattern: "Pattern | None" = None,
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
        """The bias of ``length`` queries from ``start`` on, over the filled ``room`` of a cache."""
        end = start + length
        keys = torch.arange(room or end, device=device)
        queries = keys[start:end]
        rotation = None if self.rotary is None else self.rotary(queries)
        return AttentionBias(
            *(mask, queries, keys, self.causal, self.pattern, self.bias, rotation),
            unfilled=len(keys) - end,
            # A sentence of a training batch has a token, to the left of its padding.
            no_row_empty=self.training and self.pattern is None,
        )
