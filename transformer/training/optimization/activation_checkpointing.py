"""Computes each layer again in the backward pass instead of keeping its activations.

Both passes draw the same random numbers, and the gradient is the same, bit for bit; with relative
positions within a sparse pattern it is the same up to rounding. The layers do not know of it.
Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.kv_cache import LayerCache
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer


def recompute_layers(model: nn.Module, guided: nn.Module | None = None) -> None:
    """Recompute all encoder and decoder layers of a model in the backward pass of training.

    The layers of the guided attention keep their activations, as its loss needs the weights.
    """
    for layer in model.modules():
        if isinstance(layer, EncoderLayer):
            layer.forward = _encoder_layer(layer.forward)  # type: ignore[method-assign]
        elif isinstance(layer, DecoderLayer) and layer.cross_attention is not guided:
            layer.forward = _decoder_layer(layer.forward)  # type: ignore[method-assign]


def _encoder_layer(forward: Callable[[Tensor, AttentionBias], Tensor]) -> Callable[..., Tensor]:
    def recomputed(hidden: Tensor, bias: AttentionBias) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(hidden, bias)
        _compute_shared(bias)
        return _checkpointed(lambda x: forward(x, _fresh(bias)), hidden)

    return recomputed


def _decoder_layer(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def recomputed(hidden: Tensor, cache: LayerCache, *biases: AttentionBias) -> Tensor:
        def run(x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            # A layer adds its positions to the cache, which must be empty each time.
            return forward(x, LayerCache(keys, values), *map(_fresh, biases))

        if not torch.is_grad_enabled():
            return forward(hidden, cache, *biases)
        for bias in biases:
            _compute_shared(bias)
        return _checkpointed(run, hidden, cache.cross_keys, cache.cross_values)

    return recomputed


def _compute_shared(bias: AttentionBias) -> None:
    """Compute the relative bias, which all layers share, before the first layer.

    Otherwise the second pass would find it and save other tensors. With a sparse pattern the bias
    of all queries and keys may not be needed.
    """
    if bias.pattern is None:
        _ = bias.dense_bias


def _fresh(bias: AttentionBias) -> AttentionBias:
    """The bias in the same state in both passes: computed, or with a sparse pattern not at all."""
    return bias if bias.bias is None or bias.pattern is None else replace(bias)


def _checkpointed(function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    result: Tensor = checkpoint(function, *arguments, use_reentrant=False)
    return result
