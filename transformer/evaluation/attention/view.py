"""The data of an attention view: tokens, weights, and the measured character of every head."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from transformer.evaluation.attention.head_metrics import HeadCharacter, best_heads, describe


@dataclass(frozen=True)
class AttentionKind:
    """One kind of attention over one sentence pair: a query a row, a key a column."""

    name: str
    """``encoder``, ``decoder`` or ``cross``."""
    title: str
    note: str
    query_name: str
    key_name: str
    queries: Sequence[str]
    keys: Sequence[str]
    weights: Float[Tensor, "layer head query key"]
    visible: Bool[Tensor, "query key"]
    characters: Sequence[Sequence[HeadCharacter]]
    """Of each head of each layer, over many sentences."""

    def to_json(self) -> dict[str, Any]:
        heads = [
            {"layer": layer, "head": head, "words": describe(character), **character.to_json()}
            for layer, row in enumerate(self.characters)
            for head, character in enumerate(row)
        ]
        return {
            "kind": self.name,
            "queries": list(self.queries),
            "keys": list(self.keys),
            "best": [asdict(named) for named in best_heads(self.characters)],
            "heads": heads,
        }


@dataclass(frozen=True)
class AttentionView:
    """All attention of a model over one sentence pair."""

    source: str
    target: str
    forced: bool
    checkpoint: str
    size: str
    measured: str
    """The text that the heads were measured on, for people, of so many sentence pairs."""
    sentences: int
    kinds: Sequence[AttentionKind]

    def to_json(self) -> dict[str, Any]:
        """Every measure, as plain values; layers and heads are counted from 0."""
        return {
            "source": self.source,
            "target": self.target,
            "forced": self.forced,
            "checkpoint": self.checkpoint,
            "model": self.size,
            "measured": self.measured,
            "sentences": self.sentences,
            "attention": [kind.to_json() for kind in self.kinds],
        }
