"""Rows of ``python -m benchmarks.gpu`` on the machine and on single operations.

It does not know models, but for their sizes.
"""

import os
import platform

import torch
from torch import Tensor

from benchmarks.gpu.measure import TOKENS, Bench, Values
from benchmarks.gpu.models import model_config
from benchmarks.support.records import code_version
from transformer.common.errors import InputError, is_out_of_memory
from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.kernels.sdpa import BACKENDS, Sdpa, prepare_sdpa
from transformer.model.attention.scaled_dot_product import Kernel, eager
from transformer.settings.training import LossConfig
from transformer.training.losses.cross_entropy import loss_function

KERNELS: dict[str, Kernel] = {
    "formula": eager,
    **{backend: Sdpa(backend) for backend in ("any", *BACKENDS)},
}
SECONDS = 0.2
"""Each kernel is timed for so long."""


def machine(bench: Bench) -> Values:
    """GPU, processor and versions."""
    versions = code_version("benchmarks")
    values: Values = {name: versions[name] for name in ("commit", "python", "torch")}
    values |= {"processor": f"{platform.machine()}, {os.cpu_count()} cores", "GPU": "none"}
    if bench.on_gpu:
        gpu = torch.cuda.get_device_properties(bench.device)
        values |= {"GPU": gpu.name, "GiB": gpu.total_memory / 2**30}
        values |= {"GPUs": torch.cuda.device_count(), "CUDA": torch.version.cuda}
        values["cuDNN"] = str(torch.backends.cudnn.version())
    return values


def products(bench: Bench, dtype: str) -> Values:
    """TFLOP/s of a large product."""
    return bench.products(getattr(torch, dtype))


def copies(bench: Bench) -> Values:
    """GB/s of a copy on the GPU, bytes read and written."""
    source = torch.randn(bench.of(2**29), device=bench.device)
    target = torch.empty_like(source)
    timing = bench.time(lambda: target.copy_(source))
    return {"GB/s": 2 * source.nbytes / timing["ms"] / 1e6, **timing}


def loss(bench: Bench, chunk: int, *, compiled: bool = False) -> Values:
    """Projection and cross-entropy, forward and backward, in chunks of so many rows."""
    width = model_config(bench, "base").d_model
    vocabulary = bench.vocabulary
    tokens = bench.of(TOKENS)
    hidden = torch.randn(tokens, width, device=bench.device, requires_grad=True)
    weight = torch.randn(vocabulary, width, device=bench.device).mul_(0.02).requires_grad_()
    target = torch.randint(4, vocabulary, (tokens,), device=bench.device)
    chunk = bench.of(chunk) if chunk else 0
    config = LossConfig(chunk=chunk)

    def work() -> None:
        with torch.autocast(bench.device.type, torch.bfloat16):
            summed = loss_function(config, hidden, weight, target, compiled=compiled)
        torch.autograd.grad(summed, (hidden, weight))

    timing = bench.time(work)
    return {"ms": timing.pop("ms"), "peak GiB": bench.peak(), **timing}


def attention(bench: Bench, length: int, mask: str) -> Values:
    """Milliseconds forward and backward of each kernel, in bfloat16, eight heads of 64."""
    count = max(1, bench.of(TOKENS) // length)
    length = bench.of(length)
    if mask == "causal":
        where = torch.arange(length, device=bench.device)
        context = AttentionContext(queries=where, keys=where, causal=True)
    else:
        lengths = torch.full((count, 1), length).sub_(torch.arange(count)[:, None] % 2)
        # batch source -> batch 1 1 source
        seen = (torch.arange(length)[None] < lengths)[:, None, None]
        context = AttentionContext(mask=seen.to(bench.device))
    # As a stack does it, once for all layers.
    context = prepare_sdpa(context, torch.bfloat16)
    made = [torch.randn(count, length, 8, 64, device=bench.device) for _ in range(4)]
    heads = [tensor.bfloat16().transpose(1, 2).requires_grad_() for tensor in made]
    return {name: _attend(bench, kernel, heads, context) for name, kernel in KERNELS.items()}


def _attend(
    bench: Bench, kernel: Kernel, heads: list[Tensor], context: AttentionContext
) -> float | str:
    query, key, value, upstream = heads

    def work() -> None:
        attended = kernel(query, key, value, context, 0.0)
        torch.autograd.grad(attended, (query, key, value), upstream)

    try:
        return float(bench.time(work, min(SECONDS, bench.seconds))["ms"])
    except (InputError, RuntimeError) as error:  # RuntimeError is how cuDNN says it
        return "out of memory" if is_out_of_memory(error) else "cannot"
