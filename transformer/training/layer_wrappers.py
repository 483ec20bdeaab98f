"""Wrappers around the layers of a model in training: activation checkpointing, torch.compile."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx.experimental import _config as shape_settings
from torch.utils.checkpoint import checkpoint

from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.kv_cache import LayerCache
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.settings.run import RunConfig, skips_blocks
from transformer.training.precision import trains_on_gpu

Forward = Callable[..., Tensor]

# Activation checkpointing: the backward pass recomputes the activations of layers.


def recompute_layers(model: nn.Module, guided: nn.Module | None = None) -> None:
    """Recompute layers in the backward pass instead of keeping activations (Chen et al. 2016).

    The layer with the guided attention keeps its activations. The gradient is the same, bit for
    bit.
    """
    for layer in model.modules():
        if isinstance(layer, DecoderLayer) and layer.cross_attention is guided:
            continue
        if isinstance(layer, EncoderLayer | DecoderLayer):
            layer.forward = _recomputed(layer.forward)  # type: ignore[method-assign]


def _recomputed(forward: Forward) -> Forward:
    def compute(hidden: Tensor, *contexts: LayerCache | AttentionContext) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(hidden, *contexts)

        def forward_again(hidden: Tensor) -> Tensor:
            return forward(hidden, *map(_without_positions, contexts))

        return checkpoint(forward_again, hidden, use_reentrant=False)

    return compute


def _without_positions(context: LayerCache | AttentionContext) -> LayerCache | AttentionContext:
    """The same state in both passes: a cache without own positions."""
    if isinstance(context, LayerCache):
        return LayerCache(context.cross_keys, context.cross_values)
    return context


# torch.compile: layers are compiled once for batches of all sizes (Ansel et al. 2024, "PyTorch 2").


def compile_layers(model: nn.Module, guided: nn.Module | None = None, **options: Any) -> None:
    """Compile the layers of a model, forward and backward, for any number of sentences and tokens.

    Layers with a guided attention are not compiled, because its weights are recorded. Validation
    and search, which need no gradient, run the plain layers, and so does a batch of one sentence or
    one token: each would be one more graph. To recompute layers as well, call ``recompute_layers``
    before.
    """
    # Sizes that are equal in the first batch, such as length and width, may differ in the next.
    shape_settings.use_duck_shape = False
    for layer in model.modules():
        if isinstance(layer, EncoderLayer):
            compiled = torch.compile(layer.forward, dynamic=True, **options)
        elif isinstance(layer, DecoderLayer) and layer.cross_attention is not guided:
            compiled = torch.compile(_with_new_cache(layer.forward), dynamic=True, **options)
        else:
            continue
        layer.forward = _compiled(layer.forward, compiled)  # type: ignore[method-assign]


def _with_new_cache(forward: Forward) -> Forward:
    """Give the layer a copy of its cache, because training never reads what it writes there."""

    def compute(hidden: Tensor, cache: LayerCache, *contexts: AttentionContext) -> Tensor:
        return forward(hidden, replace(cache), *contexts)

    return compute


def _compiled(forward: Forward, compiled: Forward) -> Forward:
    """The compiled layer where ``compile_layers`` says so, else the plain one."""

    def compute(hidden: Tensor, *contexts: LayerCache | AttentionContext) -> Tensor:
        caches = [context for context in contexts if isinstance(context, LayerCache)]
        sizes = [*hidden.shape[:2], *(cache.cross_keys.size(2) for cache in caches)]
        continues = any(cache.keys is not None for cache in caches)
        if 1 in sizes or continues or not torch.is_grad_enabled():
            return forward(hidden, *contexts)
        with _compiler_errors():
            return compiled(hidden, *contexts)

    return compute


@contextmanager
def _compiler_errors() -> Iterator[None]:
    """Raise an error of the compiler as InputError."""
    # It takes a second to import.
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"torch.compile does not work here ({reason}); set trainer.compile=none"
        ) from error


class CompileChoice(NamedTuple):
    """What is compiled; ``error`` is the reason why ``auto`` compiles nothing on a GPU."""

    parts: Literal["none", "loss", "layers"]
    error: str = ""


def compile_choice(config: RunConfig) -> CompileChoice:
    """The choice of ``trainer.compile``; ``auto`` is none on a CPU, or without a compiler.

    Raises InputError if the user asks for what cannot be compiled here.
    """
    wanted = config.trainer.compile
    on_gpu = trains_on_gpu(config.trainer)
    if wanted == "none" or (wanted == "auto" and not on_gpu):
        return CompileChoice("none")
    folder = given_path(config.data.cache) / "compiled"
    error = _compiler_error("cuda" if on_gpu else "cpu", folder)
    if wanted != "auto":
        if error is not None:
            raise error
        return CompileChoice(wanted)
    if error is not None:
        return CompileChoice("none", str(error))
    return CompileChoice("loss" if skips_blocks(config.model) else "layers")


@cache
def _compiler_error(device: str, folder: Path) -> Exception | None:
    """The error of compiling a sum; None if it works."""
    try:
        check_compiler(torch.device(device), folder)
    except Exception as error:  # A compiler can fail in many ways.
        return error
    return None


def check_compiler(device: torch.device, cache: Path) -> None:
    """Compile a sum, into ``cache`` unless the user has set a folder; or InputError."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache.resolve()))
    with _compiler_errors():
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=device))
