"""The whole encoder-decoder: tokens to hidden states to logits (Vaswani et al. 2017, figure 1)."""

import sys

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.attention.kv_cache import DecoderCache, FixedDecoderCache
from transformer.model.attention.masks import Source, padding_mask
from transformer.model.decoder import Decoder
from transformer.model.encoder import Encoder, Memory
from transformer.model.layers.embedding import Embedding, VectorEmbedding
from transformer.settings.model import ModelConfig


class Transformer(nn.Module):
    """Encoder, decoder, and the projection to the target vocabulary."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        source_embedding: Embedding | VectorEmbedding,
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

    def tie_weights(self) -> None:
        """Let the projection share the table of the target embedding, if the config says so."""
        if self.config.tie_embeddings in ("decoder", "all"):
            self.projection.weight = self.target_embedding.tokens.lookup.weight

    @property
    def max_lengths(self) -> tuple[int, int]:
        """Maximum tokens of a source and of a target; ``sys.maxsize`` is no limit."""
        if self.config.positions != "learned":
            return sys.maxsize, sys.maxsize
        return self.config.source_positions, self.config.max_length

    def encode(self, source: Source) -> Memory:
        """Encode padded source tokens, or vectors."""
        mask = padding_mask(source, self.config.pad)
        if self.config.class_token:
            mask = F.pad(mask, (1, 0), value=True)
        return Memory(self.encoder(self.source_embedding(source), mask), mask)

    def start(self, memory: Memory) -> DecoderCache:
        """An empty cache for decoding over this memory."""
        return self.decoder.start(memory)

    def decode(
        self, target: Int[Tensor, "rows target"], cache: DecoderCache
    ) -> Float[Tensor, "rows target width"]:
        """Hidden states of target tokens that follow the tokens in the cache.

        Padding must be at the right end, where the causal mask hides it. Each sentence has one or
        more hypotheses (``rows = batch * beam``).
        """
        if self.config.decoder_start is not None and not cache.length:
            target = F.pad(target[:, 1:], (1, 0), value=self.config.decoder_start)
        return self._scaled(self.decoder(self.target_embedding(target, cache.length), cache))

    def decode_next(
        self, tokens: Int[Tensor, "rows 1"], cache: FixedDecoderCache
    ) -> Float[Tensor, "rows 1 width"]:
        """``decode`` of one token after the first, in tensors that stay where they are."""
        return self._scaled(self.decoder.next(self.target_embedding(tokens, cache.position), cache))

    def forward(
        self, source: Source, target_input: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target width"]:
        """Teacher forcing: hidden states of all target positions at once."""
        return self.decode(target_input, self.start(self.encode(source)))

    def logits(self, hidden: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows vocab"]:
        """Project hidden states to the target vocabulary."""
        return self.projection(hidden)

    def _scaled(self, hidden: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        return hidden * self.config.output_scale if self.config.scale_output else hidden
