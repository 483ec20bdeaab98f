"""Compiles each encoder and decoder layer by ``torch.compile``, once for batches of all sizes.

Layers of one kind have one code, and share its compiled graphs. Their weights keep their names. The
layers do not know of it, and a step of a search, which continues a cache, does not use it.
Ansel et al. 2024, "PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode
Transformation and Graph Compilation".
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException
from torch.fx.experimental import _config as shape_settings

from transformer.common.errors import InputError
from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.kv_cache import LayerCache
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.layers.mixed_precision import product_dtype


def compile_layers(model: nn.Module, guided: nn.Module | None = None, **options: Any) -> None:
    """Compile the layers of a model, forward and backward, for any number of sentences and tokens.

    They are compiled at the first batch, and again for the first without gradient and for the first
    of a single sentence. A layer of the guided attention is not: its weights are recorded. To
    recompute layers too, begin with ``recompute_layers``.

    Args:
        model: The model, which changes in place.
        guided: The attention of guided alignment, if there is one.
        options: Of ``torch.compile``.
    """
    # Two sizes that are equal in the first batch, such as length and width, may differ in the next.
    shape_settings.use_duck_shape = False
    for layer in model.modules():
        if isinstance(layer, EncoderLayer):
            layer.forward = _encoder_layer(layer.forward, options)  # type: ignore[method-assign]
        elif isinstance(layer, DecoderLayer) and layer.cross_attention is not guided:
            layer.forward = _decoder_layer(layer.forward, options)  # type: ignore[method-assign]


def check_compiler(device: torch.device) -> None:
    """Compile a sum, to see that a device has what ``torch.compile`` needs.

    Raises:
        InputError: It has not, such as a C++ compiler on a CPU.
    """
    with _errors_in_one_line():
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=device))


def _encoder_layer(
    forward: Callable[..., Tensor], options: dict[str, Any]
) -> Callable[..., Tensor]:
    compiled = torch.compile(forward, dynamic=True, **options)

    def compute(hidden: Tensor, bias: AttentionBias) -> Tensor:
        # torch would compile a length of one separately, which is not worth the time.
        if hidden.size(1) == 1:
            return forward(hidden, bias)
        bias.prepare(product_dtype(hidden))
        with _errors_in_one_line():
            return compiled(hidden, bias)

    return compute


def _decoder_layer(
    forward: Callable[..., Tensor], options: dict[str, Any]
) -> Callable[..., Tensor]:
    def teach(hidden: Tensor, cache: LayerCache, *biases: AttentionBias) -> Tensor:
        # Nothing reads the keys of the target after a training step.
        return forward(hidden, replace(cache) if torch.is_grad_enabled() else cache, *biases)

    compiled = torch.compile(teach, dynamic=True, **options)

    def compute(hidden: Tensor, cache: LayerCache, *biases: AttentionBias) -> Tensor:
        if cache.keys is not None or 1 in (hidden.size(1), cache.cross_keys.size(2)):
            return forward(hidden, cache, *biases)
        for bias in biases:
            bias.prepare(product_dtype(hidden))
        with _errors_in_one_line():
            return compiled(hidden, cache, *biases)

    return compute


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except TorchDynamoException as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"trainer.compile=layers cannot compile here ({reason}); set trainer.compile=none"
        ) from error
