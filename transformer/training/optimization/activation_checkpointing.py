"""Activation checkpointing: the backward pass recomputes the activations of layers."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.kv_cache import LayerCache
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer

Forward = Callable[..., Tensor]


def recompute_layers(model: nn.Module, guided: nn.Module | None = None) -> None:
    """Recompute layers in the backward pass instead of keeping activations (Chen et al. 2016).

    The layer with the guided attention keeps its activations. The gradient is the same, bit for
    bit.
    """
    for layer in model.modules():
        keeps = isinstance(layer, DecoderLayer) and layer.cross_attention is guided
        if isinstance(layer, EncoderLayer | DecoderLayer) and not keeps:
            layer.forward = _recomputed(layer.forward)  # type: ignore[method-assign]


def _recomputed(forward: Forward) -> Forward:
    def compute(hidden: Tensor, *context: LayerCache | AttentionContext) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(hidden, *context)
        return checkpoint(lambda x: forward(x, *map(_fresh, context)), hidden, use_reentrant=False)

    return compute


def _fresh(context: LayerCache | AttentionContext) -> LayerCache | AttentionContext:
    """The same state in both passes: a cache without own positions."""
    if isinstance(context, LayerCache):
        return LayerCache(context.cross_keys, context.cross_values)
    return context
