"""Computes each layer again in the backward pass, so that its activations need not be kept.

The layers know nothing of it. What is drawn at random is drawn alike again, and the gradient is
the same, bit for bit; only up to rounding where distances are learnt within a sparse pattern.
Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer.model.attention.bias import AttentionBias
from transformer.model.attention.kv_cache import LayerCache
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer


def recompute_layers(model: nn.Module, guided: MultiHeadAttention | None = None) -> None:
    """Let all layers of a model forget what they compute on the way forward in training.

    Args:
        model: Whose encoder and decoder layers these are.
        guided: An attention that guided alignment looks at: its layers are left as they are, for
            what is looked at on the way forward must still be there on the way back.
    """
    for layer in model.modules():
        if isinstance(layer, EncoderLayer):
            layer.forward = _encoder_layer(layer.forward)  # type: ignore[method-assign]
        elif isinstance(layer, DecoderLayer) and layer.cross_attention is not guided:
            layer.forward = _decoder_layer(layer.forward)  # type: ignore[method-assign]


def _encoder_layer(forward: Callable[[Tensor, AttentionBias], Tensor]) -> Callable[..., Tensor]:
    def twice(hidden: Tensor, attention_bias: AttentionBias) -> Tensor:
        def reset(x: Tensor) -> Tensor:
            return forward(x, _anew(attention_bias))

        if not torch.is_grad_enabled():
            return forward(hidden, attention_bias)
        _make_bias(attention_bias)
        return _checkpointed(reset, hidden)

    return twice


def _decoder_layer(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def twice(hidden: Tensor, cache: LayerCache, *scopes: AttentionBias) -> Tensor:
        def reset(x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            # A layer adds its positions to the cache: each time to one that is still empty.
            return forward(x, LayerCache(keys, values), *map(_anew, scopes))

        if not torch.is_grad_enabled():
            return forward(hidden, cache, *scopes)
        for attention_bias in scopes:
            _make_bias(attention_bias)
        return _checkpointed(reset, hidden, cache.cross_keys, cache.cross_values)

    return twice


def _make_bias(attention_bias: AttentionBias) -> None:
    """Make what is learnt of distances, which all layers share, before the first of them does.

    It would not make it the second time, and keep something else. Where there is a sparse pattern
    nobody may want that of all queries and keys.
    """
    if attention_bias.pattern is None:
        _ = attention_bias.dense_bias


def _anew(attention_bias: AttentionBias) -> AttentionBias:
    """The scope that a layer finds each time: with that made, or with nothing made."""
    return (
        attention_bias
        if attention_bias.bias is None or attention_bias.pattern is None
        else replace(attention_bias)
    )


def _checkpointed(function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    result: Tensor = checkpoint(function, *arguments, use_reentrant=False)
    return result
