"""Layers that ``torch.compile`` compiles, once for batches of all sizes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental import _config as shape_settings

from transformer.common.errors import InputError
from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.kv_cache import LayerCache
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer

Forward = Callable[..., Tensor]


def compile_layers(model: nn.Module, guided: nn.Module | None = None, **options: Any) -> None:
    """Compile the layers of a model, forward and backward, for any number of sentences and tokens.

    Layers with a guided attention are not compiled, because its weights are recorded. Validation
    and search, which need no gradient, run the plain layers, and so does a batch of one sentence or
    one token: each would be one more graph. To recompute layers as well, call ``recompute_layers``
    before. Ansel et al. 2024, "PyTorch 2".
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


def check_compiler(device: torch.device, cache: Path) -> None:
    """Compile a sum, into ``cache`` unless the user has set a folder; or InputError."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache.resolve()))
    with _compiler_errors():
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=device))


def _teach(forward: Forward) -> Forward:
    """A decoder layer without its cache in training: no later position reads the cache."""

    def teach(hidden: Tensor, cache: LayerCache, *contexts: AttentionContext) -> Tensor:
        return forward(hidden, replace(cache), *contexts)

    return teach


def _compiled(forward: Forward, compiled: Forward) -> Forward:
    """The compiled layer where ``compile_layers`` says so, else the plain one."""

    def compute(hidden: Tensor, *context: LayerCache | AttentionContext) -> Tensor:
        caches = [each for each in context if isinstance(each, LayerCache)]
        single = 1 in (*hidden.shape[:2], *(cache.cross_keys.size(2) for cache in caches))
        if single or not torch.is_grad_enabled() or any(c.keys is not None for c in caches):
            return forward(hidden, *context)
        with _compiler_errors():
            return compiled(hidden, *context)

    return compute


@contextmanager
def _compiler_errors() -> Iterator[None]:
    # It takes a second to import.
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"torch.compile does not work here ({reason}); set trainer.compile=none"
        ) from error
