"""Compiles each encoder and decoder layer by ``torch.compile``, once for batches of all sizes.

Layers of a kind have one code and share its compiled graphs; their weights keep their names. The
layers do not know of it. A search, which is in inference mode, computes them as they are written.
Ansel et al. 2024, "PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode
Transformation and Graph Compilation".
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental import _config as shape_settings

from transformer.common.errors import compiler_errors
from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.kv_cache import LayerCache
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.layers.mixed_precision import product_dtype

Forward = Callable[..., Tensor]

_SETTINGS = ("trainer.compile=layers", "trainer.compile=none")


def compile_layers(model: nn.Module, guided: nn.Module | None = None, **options: Any) -> None:
    """Compile the layers of a model, forward and backward, for any number of sentences and tokens.

    Compiling happens at the first batch, and again at the first of one sentence and at the first
    without gradient. The layers of the guided attention stay as they are, as its weights are
    recorded. To recompute layers as well, call ``recompute_layers`` before. Whatever this process
    compiles later does not take equal sizes for the same, either.
    """
    # Sizes that are equal in the first batch, such as length and width, may differ in the next.
    shape_settings.use_duck_shape = False
    for layer in model.modules():
        if isinstance(layer, EncoderLayer):
            layer.forward = _encoder_layer(layer.forward, options)  # type: ignore[method-assign]
        elif isinstance(layer, DecoderLayer) and layer.cross_attention is not guided:
            layer.forward = _decoder_layer(layer.forward, options)  # type: ignore[method-assign]


def check_compiler(device: torch.device) -> None:
    """Compile a sum for a device.

    Raises:
        InputError: ``torch.compile`` cannot, such as on a CPU without a C++ compiler.
    """
    with compiler_errors(*_SETTINGS):
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=device))


def _encoder_layer(forward: Forward, options: dict[str, Any]) -> Forward:
    compiled = torch.compile(forward, dynamic=True, **options)

    def compute(hidden: Tensor, bias: AttentionBias) -> Tensor:
        if torch.is_inference_mode_enabled() or hidden.size(1) == 1:
            return forward(hidden, bias)
        return _run(compiled, hidden, bias)

    return compute


def _decoder_layer(forward: Forward, options: dict[str, Any]) -> Forward:
    def teach(hidden: Tensor, cache: LayerCache, *biases: AttentionBias) -> Tensor:
        # With a gradient, no later position reads the cache.
        return forward(hidden, replace(cache) if torch.is_grad_enabled() else cache, *biases)

    compiled = torch.compile(teach, dynamic=True, **options)

    def compute(hidden: Tensor, cache: LayerCache, *biases: AttentionBias) -> Tensor:
        single = 1 in (hidden.size(1), cache.cross_keys.size(2))
        if torch.is_inference_mode_enabled() or single or cache.keys is not None:
            return forward(hidden, cache, *biases)
        return _run(compiled, hidden, cache, *biases)

    return compute


def _run(compiled: Forward, hidden: Tensor, *context: LayerCache | AttentionBias) -> Tensor:
    """Compute a compiled layer.

    A length of one is left to the callers: torch would compile it separately.
    """
    for each in context:
        if isinstance(each, AttentionBias):
            each.prepare(product_dtype(hidden))
    with compiler_errors(*_SETTINGS):
        return compiled(hidden, *context)
