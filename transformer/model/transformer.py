"""The whole encoder-decoder: tokens to hidden states to logits (Vaswani et al. 2017, figure 1)."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.kv_cache import DecoderCache
from transformer.model.attention.masks import padding_mask
from transformer.model.config import ModelConfig
from transformer.model.decoder import Decoder
from transformer.model.encoder import Encoder, Memory
from transformer.model.layers.embedding import Embedding

if TYPE_CHECKING:
    from transformer.common.segments import Packing


class Transformer(nn.Module):
    """Encoder, decoder, and the projection to the target vocabulary."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        source_embedding: Embedding,
        target_embedding: Embedding,
        encoder: Encoder,
        decoder: Decoder,
        projection: nn.Linear,
    ) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.projection = projection

    @property
    def max_length(self) -> int | None:
        """Limit of the tokens of a sentence; None if positions exist for any length."""
        return self.config.max_length if self.config.positions == "learned" else None

    def encode(self, source: Int[Tensor, "batch source"]) -> Memory:
        """Encode padded source tokens."""
        mask = padding_mask(source, self.config.pad)
        return Memory(self.encoder(self.source_embedding(source), mask), mask)

    def start(self, memory: Memory) -> DecoderCache:
        """An empty cache for decoding over this memory."""
        return self.decoder.start(memory)

    def decode(
        self, target: Int[Tensor, "rows target"], cache: DecoderCache
    ) -> Float[Tensor, "rows target width"]:
        """Hidden states of the target tokens that follow those in the cache.

        Padding must be at the right end, where the causal mask hides it. There are one or more
        rows for each sentence (``rows = batch * beam``).
        """
        if not cache.length:
            target = self._started(target, torch.arange(target.size(1), device=target.device))
        return self.decoder(self.target_embedding(target, cache.length), cache)

    def _started(
        self, target: Int[Tensor, "rows target"], positions: Int[Tensor, "*rows target"]
    ) -> Int[Tensor, "rows target"]:
        """The tokens, with ``model.decoder_start`` at the positions 0."""
        start = self.config.decoder_start
        return target if start is None else target.masked_fill(positions == 0, start)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target_input: Int[Tensor, "batch target"],
        packing: "Packing | None" = None,
    ) -> Float[Tensor, "batch target width"]:
        """Teacher forcing: hidden states of all target positions at once.

        Rows are padded sentences or, with ``packing``, sentences that are laid end to end.
        """
        if packing is None:
            return self.decode(target_input, self.start(self.encode(source)))
        from transformer.model.attention.packed import PackedSentences

        embedded = self.source_embedding(source, segments=packing.source)
        memory = self.encoder(embedded, None, packing.source)
        packed = PackedSentences.of(packing.target, packing.source, causal=False)
        cache = self.decoder.start_under(AttentionBias(packed=packed), memory)
        target_input = self._started(target_input, packing.target.positions)
        return self.decoder(self.target_embedding(target_input, segments=packing.target), cache)

    def logits(self, hidden: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows vocab"]:
        """Project hidden states to the target vocabulary."""
        return self.projection(hidden)
