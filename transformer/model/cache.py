"""What decoding remembers between steps: keys and values, outside of the modules.

It does not know how they were computed or which search reorders them. Rows stand sentence by
sentence: ``rows = batch * beam``. Cross-attention is kept once a sentence, since all beams of a
sentence look at the same source.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

RowHeads = Float[Tensor, "rows kv_head target head_dim"]
AllHeads = Float[Tensor, "rows kv_head past_and_target head_dim"]
SentenceHeads = Float[Tensor, "batch kv_head source head_dim"]


@dataclass
class LayerCache:
    """Keys and values of one decoder layer; ``rows`` are those that go on, None for all."""

    cross_keys: SentenceHeads
    cross_values: SentenceHeads
    keys: RowHeads | None = None
    values: RowHeads | None = None
    rows: Int[Tensor, " selected"] | None = None

    def append(self, keys: RowHeads, values: RowHeads) -> tuple[AllHeads, AllHeads]:
        """Add new positions and return all of them."""
        if self.keys is not None and self.values is not None:
            keys = torch.cat((self._gone_on(self.keys), keys), dim=2)
            values = torch.cat((self._gone_on(self.values), values), dim=2)
        self.keys, self.values, self.rows = keys, values, None
        return keys, values

    def select_sentences(self, sentences: Int[Tensor, " kept"]) -> None:
        """Keep the source side of these sentences."""
        self.cross_keys = self.cross_keys.index_select(0, sentences)
        self.cross_values = self.cross_values.index_select(0, sentences)

    def _gone_on(
        self, heads: Float[Tensor, "before kv_head past head_dim"]
    ) -> Float[Tensor, "rows kv_head past head_dim"]:
        return heads if self.rows is None else heads.index_select(0, self.rows)


@dataclass
class DecoderCache:
    """The caches of all layers, the source mask, and how many positions they hold.

    Rows are selected when the next position is added, and then in one go: the attention reads them
    right after, while they are in the processor's cache. Room for the whole target, allocated
    once, was measured to be slower (docs/decoding.md).
    """

    layers: list[LayerCache]
    mask: Bool[Tensor, "batch 1 1 source"]
    length: int = field(default=0)

    def reorder(self, rows: Int[Tensor, " selected"]) -> None:
        """Let row ``i`` go on from what row ``rows[i]`` has decoded, within its sentence."""
        before = self.layers[0].rows
        chosen = rows if before is None else before[rows]
        for layer in self.layers:
            layer.rows = chosen

    def keep(self, sentences: Int[Tensor, " kept"], beam: int) -> None:
        """Drop all sentences but these, with all their beams."""
        offsets = torch.arange(beam, device=sentences.device)
        # kept beam -> (kept beam)
        self.reorder((sentences[:, None] * beam + offsets).flatten())
        for layer in self.layers:
            layer.select_sentences(sentences)
        self.mask = self.mask.index_select(0, sentences)
