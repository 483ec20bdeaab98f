"""Layers in training: recomputed in the backward pass, or compiled."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental import _config as shape_settings
from torch.utils.checkpoint import checkpoint

from transformer.common.errors import compiler_errors
from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.kernels.fused import prepare
from transformer.model.attention.kv_cache import LayerCache
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.layers.mixed_precision import product_dtype

Forward = Callable[..., Tensor]

_SETTINGS = ("trainer.compile=layers", "trainer.compile=none")


def recompute_layers(model: nn.Module, guided: nn.Module | None = None) -> None:
    """Recompute layers in the backward pass instead of keeping their activations.

    The layer of the guided attention keeps them. The gradient is the same, bit for bit; with
    relative positions within a sparse pattern, up to rounding. Chen et al. 2016, "Training Deep
    Nets with Sublinear Memory Cost".
    """
    for layer in model.modules():
        keeps = isinstance(layer, DecoderLayer) and layer.cross_attention is guided
        if isinstance(layer, EncoderLayer | DecoderLayer) and not keeps:
            layer.forward = _recomputed(layer.forward)  # type: ignore[method-assign]


def _recomputed(forward: Forward) -> Forward:
    def compute(hidden: Tensor, *context: LayerCache | AttentionBias) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(hidden, *context)
        for each in context:
            # All layers share the relative bias: the second pass would find it and save other
            # tensors. With a sparse pattern the bias of all queries and keys may not be needed.
            if isinstance(each, AttentionBias) and each.pattern is None:
                _ = each.dense_bias
        result: Tensor = checkpoint(
            lambda x: forward(x, *map(_fresh, context)), hidden, use_reentrant=False
        )
        return result

    return compute


def _fresh(context: LayerCache | AttentionBias) -> LayerCache | AttentionBias:
    """The same state in both passes: a cache without own positions, a bias computed or not."""
    if isinstance(context, LayerCache):
        return LayerCache(context.cross_keys, context.cross_values)
    return context if context.bias is None or context.pattern is None else replace(context)


def compile_layers(model: nn.Module, guided: nn.Module | None = None, **options: Any) -> None:
    """Compile the layers of a model, forward and backward, for any number of sentences and tokens.

    The layers of the guided attention are not compiled, as its weights are recorded. A search,
    which is in inference mode, computes the plain layers. To recompute layers as well, call
    ``recompute_layers`` before. Ansel et al. 2024, "PyTorch 2".
    """
    # Sizes that are equal in the first batch, such as length and width, may differ in the next.
    shape_settings.use_duck_shape = False
    for layer in model.modules():
        if isinstance(layer, EncoderLayer):
            compiled = torch.compile(layer.forward, dynamic=True, **options)
        elif isinstance(layer, DecoderLayer) and layer.cross_attention is not guided:
            compiled = torch.compile(_teach(layer.forward), dynamic=True, **options)
        else:
            continue
        layer.forward = _compiled(layer.forward, compiled)  # type: ignore[method-assign]


def check_compiler(device: torch.device) -> None:
    """Compile a sum; raises InputError if the device cannot, such as without a C++ compiler."""
    with compiler_errors(*_SETTINGS):
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=device))


def _teach(forward: Forward) -> Forward:
    """A decoder layer without its cache where there is a gradient: no later position reads it."""

    def teach(hidden: Tensor, cache: LayerCache, *biases: AttentionBias) -> Tensor:
        return forward(hidden, replace(cache) if torch.is_grad_enabled() else cache, *biases)

    return teach


def _compiled(forward: Forward, compiled: Forward) -> Forward:
    """The compiled layer; in a search, and for a length of one, the plain one."""

    def compute(hidden: Tensor, *context: LayerCache | AttentionBias) -> Tensor:
        caches = [each for each in context if isinstance(each, LayerCache)]
        single = 1 in (hidden.size(1), *(cache.cross_keys.size(2) for cache in caches))
        searches = torch.is_inference_mode_enabled() or any(c.keys is not None for c in caches)
        if single or searches:
            return forward(hidden, *context)
        for each in context:
            if isinstance(each, AttentionBias):
                prepare(each, product_dtype(hidden))
        with compiler_errors(*_SETTINGS):
            return compiled(hidden, *context)

    return compute
