"""Computes each layer again in the backward pass, so that its activations need not be kept.

The layers know nothing of it. What is drawn at random is drawn alike again, and the gradient is
the same, bit for bit. Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer.model.attention import MultiHeadAttention
from transformer.model.cache import LayerCache
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.scope import Scope


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


def _encoder_layer(forward: Callable[[Tensor, Scope], Tensor]) -> Callable[..., Tensor]:
    def twice(hidden: Tensor, scope: Scope) -> Tensor:
        _make_bias([scope])
        return _checkpointed(forward, hidden, scope)

    return twice


def _decoder_layer(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def twice(hidden: Tensor, cache: LayerCache, *scopes: Scope) -> Tensor:
        def begun_anew(x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            # A layer adds its positions to the cache: each time to one that is still empty.
            return forward(x, LayerCache(keys, values), *scopes)

        if not torch.is_grad_enabled():
            return forward(hidden, cache, *scopes)
        _make_bias(scopes)
        return _checkpointed(begun_anew, hidden, cache.cross_keys, cache.cross_values)

    return twice


def _make_bias(scopes: Sequence[Scope]) -> None:
    """Make what a stack learns and its layers share before the first of them would, once only.

    Made inside a layer it would not be made there again, and what the layer keeps would differ.
    """
    for scope in scopes:
        _ = scope.dense_bias


def _checkpointed(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    if not torch.is_grad_enabled():
        return function(*arguments)
    result: Tensor = checkpoint(function, *arguments, use_reentrant=False)
    return result
