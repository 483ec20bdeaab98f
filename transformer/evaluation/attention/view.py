"""What a view of attention shows: tokens, weights, and the measured character of every head.

It knows neither model nor tokenizer, nor how the view is drawn (attention_page.py,
attention_figure.py).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from transformer.evaluation.attention.head_metrics import HeadCharacter, best_heads, describe


@dataclass(frozen=True)
class AttentionKind:
    """One kind of attention over one sentence pair.

    Attributes:
        name: ``encoder``, ``decoder`` or ``cross``.
        title: For people.
        note: What rows and columns are.
        query_name: What a row is called where one weight is told.
        key_name: Likewise, a column.
        queries: Token of each row.
        keys: Token of each column.
        weights: Of this sentence pair.
        visible: What each query may see.
        characters: Of each head of each layer, over many sentences.
    """

    name: str
    title: str
    note: str
    query_name: str
    key_name: str
    queries: Sequence[str]
    keys: Sequence[str]
    weights: Float[Tensor, "layer head query key"]
    visible: Bool[Tensor, "query key"]
    characters: Sequence[Sequence[HeadCharacter]]

    @property
    def wants_gold(self) -> bool:
        """Heads that look from target to source are measured against gold links, where known."""
        return self.name == "cross"

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the weights."""
        heads = [
            {"layer": layer, "head": head, "words": describe(character), **character.to_json()}
            for layer, row in enumerate(self.characters)
            for head, character in enumerate(row)
        ]
        best = [asdict(named) for named in best_heads(self.characters)]
        return {
            "kind": self.name,
            "queries": list(self.queries),
            "keys": list(self.keys),
            "best": best,
            "heads": heads,
        }


@dataclass(frozen=True)
class AttentionView:
    """All attention of a model over one sentence pair.

    Attributes:
        source: The text as it was given.
        target: Its translation.
        forced: The translation was given too, and not found by the model.
        checkpoint: Where the model comes from.
        size: Its shape, for people.
        measured: On what the characters of the heads were measured, for people.
        sentences: On how many sentence pairs.
        kinds: Encoder, decoder and cross-attention.
    """

    source: str
    target: str
    forced: bool
    checkpoint: str
    size: str
    measured: str
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
