"""The decoder: target embeddings and memory to hidden states (Vaswani et al. 2017, figure 1)."""

from collections.abc import Iterable
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor, nn

from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.kv_cache import (
    DecoderCache,
    FixedDecoderCache,
    LayerCache,
    room_for,
)
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.encoder import LayerStack, Memory
from transformer.model.layers.fused_projection import fused_projection, fusing_pays, linear_together
from transformer.model.layers.layer_drop import layer_is_dropped
from transformer.model.layers.linear import for_products, product_dtype
from transformer.model.layers.residual import Residual

Hidden = Float[Tensor, "rows target width"]


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention, feed-forward, each with its residual."""

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        *,
        self_residual: Residual,
        cross_residual: Residual,
        feed_forward_residual: Residual,
    ) -> None:
        super().__init__()
        # Multi-head attention; a subclass may have something else in its place.
        self.self_attention: Any = self_attention
        self.self_residual = self_residual
        self.cross_attention = cross_attention
        self.cross_residual = cross_residual
        self.feed_forward = feed_forward
        self.feed_forward_residual = feed_forward_residual

    def forward(
        self,
        hidden: Hidden,
        cache: LayerCache,
        self_context: AttentionContext,
        source_context: AttentionContext,
    ) -> Hidden:
        """One layer of the right half of figure 1; adds the new positions to the cache."""
        hidden = self.self_residual(hidden, lambda x: self._attend_self(x, cache, self_context))
        hidden = self.cross_residual(
            hidden, lambda x: self._attend_source(x, cache, source_context)
        )
        return self.feed_forward_residual(hidden, self.feed_forward)

    def start(self, memory: Float[Tensor, "batch source width"]) -> LayerCache:
        """Project the source once, for all steps."""
        attention = self.cross_attention
        projected = linear_together(memory, (attention.key, attention.value))
        return LayerCache(*attention.split_keys(*projected))

    def _attend_self(self, x: Hidden, cache: LayerCache, context: AttentionContext) -> Hidden:
        attention: MultiHeadAttention = self.self_attention
        queries, keys, values = attention.project(x, x, x, context)
        keys, values = cache.append(keys, values)
        return attention.attend_heads(queries, keys, values, context)

    def _attend_source(self, x: Hidden, cache: LayerCache, context: AttentionContext) -> Hidden:
        # Target positions do not attend to each other here: the hypotheses of a sentence are one
        # long query. (batch beam) target width -> batch (beam target) width
        attention = self.cross_attention
        keys, values = cache.cross_keys, cache.cross_values
        query = x.reshape(keys.size(0), -1, x.size(-1))
        queries = attention.split_queries(attention.query(query))
        return attention.attend_heads(queries, keys, values, context).reshape(x.shape)


class RecurrentDecoderLayer(DecoderLayer):
    """A layer whose ``self_attention`` is an ``SSRU`` (layers/recurrence.py)."""

    def _attend_self(self, x: Hidden, cache: LayerCache, context: AttentionContext) -> Hidden:
        # A position reads those before it by the state alone, so that no mask is needed.
        attended, state = self.self_attention(x, cache.continued_state())
        cache.continue_from(state)
        cache.length += x.size(1)
        return attended


class Decoder(LayerStack):
    """A stack of decoder layers."""

    def forward(self, hidden: Hidden, cache: DecoderCache) -> Hidden:
        length = hidden.size(1)
        room = room_for(cache.length, length, hidden.device)
        self_context = self.attention_context(
            length, cache.length, None, hidden.device, dtype=product_dtype(hidden), room=room
        )
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            if not layer_is_dropped(self.layer_drop, self.training):
                hidden = layer(hidden, layer_cache, self_context, cache.source_context)
        cache.length += length
        return self.final_norm(hidden)

    def next(self, hidden: Hidden, cache: FixedDecoderCache) -> Hidden:
        """``forward`` of one more position, which a CUDA graph can repeat.

        It depends on no number of the host: the position is read on the device.
        """
        context = self.attention_context
        dtype = product_dtype(hidden)
        self_context = context.at(cache.position, cache.room, dtype)
        assert cache.source_context.mask is not None
        source_context = context.cross(cache.source_context.mask, dtype)
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            hidden = layer(hidden, layer_cache, self_context, source_context)
        return self.final_norm(hidden)

    def start(self, memory: Memory) -> DecoderCache:
        """An empty cache over this source."""
        layers = cast(Iterable[DecoderLayer], self.layers)
        attentions = [layer.cross_attention for layer in layers]
        projections = []
        for attention in attentions:
            projections += [attention.key, attention.value]
        # One product would give the weights of a dropped layer a gradient of zeros instead of none.
        if self.layer_drop or not fusing_pays(memory.hidden, projections):
            caches = [layer.start(memory.hidden) for layer in layers]
        else:
            mapped = fused_projection(for_products(memory.hidden), projections)
            caches = [
                LayerCache(*attention.split_keys(keys, values))
                for attention, keys, values in zip(
                    attentions, mapped[::2], mapped[1::2], strict=True
                )
            ]
        dtype = product_dtype(memory.hidden)
        return DecoderCache(caches, self.attention_context.cross(memory.mask, dtype))
