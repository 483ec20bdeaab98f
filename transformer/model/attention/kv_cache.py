"""What decoding remembers between steps: keys and values, outside of the modules.

It does not know how they were computed or which search reorders them. Rows stand sentence by
sentence: ``rows = batch * beam``. Cross-attention is kept once a sentence, since all beams of a
sentence look at the same source.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

RowHeads = Float[Tensor, "rows kv_head target head_dim"]
AllHeads = Float[Tensor, "rows kv_head room head_dim"]
SentenceHeads = Float[Tensor, "batch kv_head source head_dim"]


BLOCK = 16
"""Positions are allocated by so many: that is how many numbers the softmax of a CPU takes at once,
and fewer take it ten times as long."""


def room_for(past: int, new: int) -> int:
    """Positions that a layer has memory for once the new ones are added.

    The first ones are kept as they come: teacher forcing has no others, and needs no copy.
    """
    return -(-(past + new) // BLOCK) * BLOCK if past else new


@dataclass
class LayerCache:
    """Keys and values of one decoder layer.

    ``length`` of its positions are there; ``rows`` are the hypotheses that go on, None for all.
    """

    cross_keys: SentenceHeads
    cross_values: SentenceHeads
    keys: RowHeads | None = None
    values: RowHeads | None = None
    length: int = 0
    rows: Int[Tensor, " selected"] | None = None

    def append(self, keys: RowHeads, values: RowHeads) -> tuple[AllHeads, AllHeads]:
        """Add new positions; return all of them, and zeros where there is room for more."""
        start, self.length = self.length, self.length + keys.size(2)
        if self.keys is None or self.values is None:
            self.keys, self.values = keys, values
        else:
            room = room_for(start, keys.size(2))
            self.keys = self._gone_on(self.keys, room)
            self.values = self._gone_on(self.values, room)
            self.keys[:, :, start : self.length] = keys
            self.values[:, :, start : self.length] = values
        self.rows = None
        return self.keys, self.values

    def select_sentences(self, sentences: Int[Tensor, " kept"]) -> None:
        """Keep the source side of these sentences."""
        self.cross_keys = self.cross_keys.index_select(0, sentences)
        self.cross_values = self.cross_values.index_select(0, sentences)

    def _gone_on(
        self, heads: Float[Tensor, "before kv_head past head_dim"], room: int
    ) -> Float[Tensor, "rows kv_head room head_dim"]:
        """The rows that go on, in memory of their own with room for more positions."""
        if self.rows is not None:
            heads = heads.index_select(0, self.rows)
        return F.pad(heads, (0, 0, 0, room - heads.size(2))) if heads.size(2) < room else heads


@dataclass
class DecoderCache:
    """The caches of all layers, the source mask, and how many positions they hold.

    Rows are selected when the next position is added, and then in one go: the attention reads them
    right after, while they are in the processor's cache. To move only the rows that change was
    measured to be slower (docs/decoding.md).
    """

    layers: list[LayerCache]
    mask: Bool[Tensor, "batch 1 1 source"]
    length: int = field(default=0)

    def gather_source(self) -> None:
        """Lay out the source side as every step will read it, head by head."""
        for layer in self.layers:
            layer.cross_keys = layer.cross_keys.contiguous()
            layer.cross_values = layer.cross_values.contiguous()

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
