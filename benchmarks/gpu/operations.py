"""Rows of ``python -m benchmarks.gpu`` on the machine and on single operations.

It does not know models, but for their sizes.
"""

import os
import platform
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu.measure import TOKENS, Bench, Values, elapsed
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
LENGTHS = 20
"""Above 512 positions, one after another."""
FLOAT8 = torch.float8_e4m3fn


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


def float8(bench: Bench, inputs: int, outputs: int) -> Values:
    """A linear layer over 25,000 tokens: its three products in bfloat16, and in float8.

    Each tensor has one scale, from its largest element. Casts, scales and the copies that the
    backward products need (float8 takes rows of one side and columns of the other) are measured
    with the products, and then the products alone.
    """
    tokens, inputs, outputs = (
        16 * max(1, bench.of(size) // 16) for size in (TOKENS, inputs, outputs)
    )
    shapes = ((tokens, inputs), (outputs, inputs), (tokens, outputs))
    x, weight, upstream = (torch.randn(shape, device=bench.device).bfloat16() for shape in shapes)
    pairs = ((x, weight), (upstream, weight.T), (upstream.T, x.T))

    def narrow() -> None:
        for left, right in pairs:
            left @ right.T

    def cast() -> list[tuple[Narrow, Narrow]]:
        return [(Narrow.of(left), Narrow.of(right)) for left, right in pairs]

    ready = cast()
    exact = x @ weight.T
    error = (_product(*ready[0]) - exact).norm() / exact.norm()
    timings = {
        "bfloat16, ms": narrow,
        "float8, ms": lambda: [_product(*sides) for sides in cast()],
        "its products, ms": lambda: [_product(*sides) for sides in ready],
    }
    seconds = min(SECONDS, bench.seconds)
    values: Values = {name: bench.time(call, seconds)["ms"] for name, call in timings.items()}
    return values | {"relative error": error.item()}


class Narrow(NamedTuple):
    """A matrix in float8, by rows, and the factor of its elements."""

    elements: Tensor
    scale: Tensor

    @classmethod
    def of(cls, matrix: Tensor) -> "Narrow":
        """Cast so that the largest element is the largest of the type."""
        scale = matrix.abs().amax().float() / torch.finfo(FLOAT8).max
        return cls((matrix / scale).to(FLOAT8).contiguous(), scale)


def _product(left: Narrow, right: Narrow) -> Tensor:
    """The left matrix times the transposed right one, in bfloat16."""
    whole = F.ScalingType.TensorWise
    return F.scaled_mm(left.elements, right.elements.T, left.scale, whole, right.scale, whole)


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


def planning(bench: Bench, backend: str) -> Values:
    """Milliseconds of padded attention over lengths that the GPU meets first, and again."""
    kernel = KERNELS[backend if bench.on_gpu else "any"]
    longest = bench.of(512 + LENGTHS)
    calls = []
    for length in range(longest - min(LENGTHS, longest // 2), longest):
        seen = (torch.arange(length, device=bench.device) < length - 1).expand(4, 1, 1, -1)
        context = prepare_sdpa(AttentionContext(mask=seen), torch.bfloat16)
        made = [torch.randn(4, 8, length, 64, device=bench.device) for _ in range(4)]
        heads = [tensor.bfloat16().requires_grad_() for tensor in made]
        calls.append(partial(_forward_and_backward, kernel, heads, context))

    def all_of_them() -> None:
        for call in calls:
            call()

    calls.pop()()  # a warm-up
    names = ("ms, a length seen first", "seen again")
    return {name: elapsed(bench.device, all_of_them) / len(calls) for name in names}


def _forward_and_backward(kernel: Kernel, heads: list[Tensor], context: AttentionContext) -> None:
    query, key, value, upstream = heads
    attended = kernel(query, key, value, context, 0.0)
    torch.autograd.grad(attended, (query, key, value), upstream)


def _attend(
    bench: Bench, kernel: Kernel, heads: list[Tensor], context: AttentionContext
) -> float | str:
    work = partial(_forward_and_backward, kernel, heads, context)
    try:
        return float(bench.time(work, min(SECONDS, bench.seconds))["ms"])
    except (InputError, RuntimeError) as error:  # RuntimeError is how cuDNN says it
        return "out of memory" if is_out_of_memory(error) else "cannot"
