"""Cache of keys and values between steps; rows are hypotheses by sentence, batch * beam."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from transformer.model.attention.attention_context import AttentionContext

RowHeads = Float[Tensor, "rows kv_head target head_dim"]
AllHeads = Float[Tensor, "rows kv_head room head_dim"]
SentenceHeads = Float[Tensor, "batch kv_head source head_dim"]

BLOCK = 16
"""Positions allocated at once on a CPU: the vector size of torch's softmax there."""

REPEATED_BLOCK = 32
"""Positions allocated at once where shapes should repeat."""


def repeats_shapes(device: torch.device) -> bool:
    """Whether a search should repeat shapes: except on a CPU, starting a kernel takes longer."""
    return device.type != "cpu"


def block_of(device: torch.device) -> int:
    """Positions allocated at once."""
    return REPEATED_BLOCK if repeats_shapes(device) else BLOCK


def room_for(past: int, new: int, device: torch.device) -> int:
    """Positions that a layer allocates: at first the new ones, as teacher forcing adds none."""
    if not past:
        return new
    block = block_of(device)
    return -(-(past + new) // block) * block


@dataclass
class LayerCache:
    """Keys and values of a decoder layer; ``rows`` are the hypotheses that go on (None: all)."""

    cross_keys: SentenceHeads
    cross_values: SentenceHeads
    keys: RowHeads | None = None
    values: RowHeads | None = None
    length: int = 0
    rows: Int[Tensor, " selected"] | None = None
    state: Float[Tensor, "rows width"] | None = None
    """In place of keys and values, of a recurrent layer."""

    def append(self, keys: RowHeads, values: RowHeads) -> tuple[AllHeads, AllHeads]:
        """Add new positions; return all positions, with zeros in the empty ones."""
        if self.keys is None or self.values is None:
            self.keys, self.values = keys, values
        else:
            room = room_for(self.length, keys.size(2), keys.device)
            self.keys = self.selected(self.keys, room)
            self.values = self.selected(self.values, room)
            new = slice(self.length, self.length + keys.size(2))
            self.keys[:, :, new] = keys
            self.values[:, :, new] = values
        self.rows = None
        self.length += keys.size(2)
        return self.keys, self.values

    def continued_state(self) -> Float[Tensor, "rows width"] | None:
        """The state of the hypotheses that continue."""
        if self.state is not None and self.rows is not None:
            self.state = self.state.index_select(0, self.rows)
            self.rows = None
        return self.state

    def continue_from(self, state: Float[Tensor, "rows width"]) -> None:
        """Keep the state after the newest position."""
        self.state = state

    def selected(self, heads: Tensor, room: int) -> AllHeads:
        """Keys or values of the hypotheses that continue, with zeros up to this room."""
        if self.rows is not None:
            heads = heads.index_select(0, self.rows)
        return F.pad(heads, (0, 0, 0, room - heads.size(2))) if heads.size(2) < room else heads


@dataclass(kw_only=True)
class FixedLayerCache(LayerCache):
    """A cache of tensors that stay where they are, as a CUDA graph needs them.

    A new position is written in place. ``rows`` are the hypotheses of ``before``, a cache in other
    tensors, that continue; without ``before`` each hypothesis continues itself.
    """

    position: Int[Tensor, " 1"]
    before: LayerCache | None = None

    def append(self, keys: RowHeads, values: RowHeads) -> tuple[AllHeads, AllHeads]:
        """Write one position; return the whole room, whose later positions a mask must hide."""
        before = self.before
        assert self.keys is not None and self.values is not None
        if before is not None:
            assert before.keys is not None and before.values is not None and self.rows is not None
            torch.index_select(before.keys, 0, self.rows, out=self.keys)
            torch.index_select(before.values, 0, self.rows, out=self.values)
        self.keys.index_copy_(2, self.position, keys)
        self.values.index_copy_(2, self.position, values)
        return self.keys, self.values

    def continued_state(self) -> Float[Tensor, "rows width"] | None:
        assert self.state is not None
        if self.before is not None:
            assert self.before.state is not None and self.rows is not None
            torch.index_select(self.before.state, 0, self.rows, out=self.state)
        return self.state

    def continue_from(self, state: Float[Tensor, "rows width"]) -> None:
        assert self.state is not None
        self.state.copy_(state)


@dataclass
class DecoderCache:
    """The caches of all layers; ``reorder`` takes effect with the next position."""

    layers: list[LayerCache]
    source_context: AttentionContext
    length: int = 0

    def gather_source(self) -> None:
        """Make the source side contiguous, because every step reads it head by head."""
        for layer in self.layers:
            layer.cross_keys = layer.cross_keys.contiguous()
            layer.cross_values = layer.cross_values.contiguous()

    def reorder(self, rows: Int[Tensor, " selected"]) -> None:
        """Let hypothesis ``i`` continue hypothesis ``rows[i]`` of the same sentence."""
        before = self.layers[0].rows
        for layer in self.layers:
            layer.rows = rows if before is None else before[rows]

    def keep(self, sentences: Int[Tensor, " kept"], beam: int) -> None:
        """Keep only these sentences, with all their hypotheses."""
        offsets = torch.arange(beam, device=sentences.device)
        # kept beam -> (kept beam)
        self.reorder((sentences[:, None] * beam + offsets).flatten())
        for layer in self.layers:
            layer.cross_keys = layer.cross_keys.index_select(0, sentences)
            layer.cross_values = layer.cross_values.index_select(0, sentences)
        self.source_context = self.source_context.select(sentences)


@dataclass(kw_only=True)
class FixedDecoderCache(DecoderCache):
    """``FixedLayerCache`` of all layers; the position to be written is on the device."""

    position: Int[Tensor, " 1"]
    room: int
