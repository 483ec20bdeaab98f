"""The data of an attention view: tokens, weights, and the measured character of every head.

It knows neither model nor tokenizer, nor how the view is drawn.
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
        note: Description of rows and columns.
        query_name: Name of a row in the text about one weight.
        key_name: Likewise, of a column.
        queries: Token of each row.
        keys: Token of each column.
        weights: Of this sentence pair.
        visible: The keys that each query sees.
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

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the weights."""
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
    """All attention of a model over one sentence pair.

    Attributes:
        source: The source text.
        target: Its translation.
        forced: Whether the user gave the translation.
        checkpoint: The origin of the model.
        size: Its shape, for people.
        measured: The text that the heads were measured on, for people.
        sentences: Its number of sentence pairs.
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
