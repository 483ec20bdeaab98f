"""Cases of benchmarks/gpu.py on single operations: large products, attention, the loss.

It does not know models, but for their sizes.
"""

import platform
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from benchmarks.gpu_cost import Size
from benchmarks.gpu_steps import BareStep, Bench, Rows, matrix_rate
from benchmarks.version import code_version
from transformer.common.errors import InputError
from transformer.model.attention.attention_bias import AttentionBias
from transformer.model.attention.kernels import BACKENDS, Sdpa
from transformer.model.attention.multi_head import Kernel, eager
from transformer.training.losses.cross_entropy import loss_function

KERNELS: dict[str, Kernel] = {
    "formula": eager,
    **{backend: Sdpa(backend) for backend in ("any", *BACKENDS)},
}


def env(bench: Bench) -> Rows:
    """Card, versions, what the card can do, and which kernel torch chooses for attention."""
    BareStep(bench)  # a model may change what torch chooses from
    shape: dict[str, Any] = {"device": bench.device, "dtype": torch.bfloat16, "requires_grad": True}
    heads = torch.randn(8, 8, 32, 64, **shape)
    seen = torch.ones(8, 1, 1, 32, dtype=torch.bool, device=bench.device)
    chosen = {
        name: SDPBackend(torch._fused_sdp_choice(heads, heads, heads, **given)).name
        for name, given in (("causal", {"is_causal": True}), ("masked", {"attn_mask": seen}))
    }
    versions = code_version("benchmarks")
    found: dict[str, Any] = {name: versions[name] for name in ("commit", "python", "torch")}
    if bench.device.type == "cuda":
        card = torch.cuda.get_device_properties(bench.device)
        found |= {
            "card": card.name,
            "GiB": card.total_memory / 2**30,
            "cards": torch.cuda.device_count(),
        }
        found |= {"CUDA": torch.version.cuda, "cuDNN": str(torch.backends.cudnn.version())}
    else:
        found["card"] = platform.machine()
    for dtype in (torch.float32, torch.bfloat16):
        found[f"TFLOP/s of products, {dtype}".replace("torch.", "")] = matrix_rate(bench, dtype)
    found |= {f"attention, {name}": backend for name, backend in chosen.items()}
    return [{"what": name, "found": value} for name, value in found.items()]


def loss(bench: Bench) -> Rows:
    """Projection and cross-entropy, forward and backward, in chunks of so many rows."""
    size = Size.of(bench.values()["model"], bench.vocabulary)
    hidden = torch.randn(bench.tokens, size.width, device=bench.device, requires_grad=True)
    weight = torch.randn(size.vocabulary, size.width, device=bench.device).mul_(0.02)
    weight.requires_grad_()
    right = torch.randint(4, size.vocabulary, (bench.tokens,), device=bench.device)
    for chunk in (0, 512, 2048, 8192):
        config = bench.config(f"loss.chunk={chunk}").loss

        def work(_: int, config: Any = config) -> None:
            with torch.autocast(bench.device.type, torch.bfloat16):
                summed = loss_function(config, hidden, weight, right)
            torch.autograd.grad(summed, (hidden, weight))

        bench.peak()
        yield {"chunk": chunk or "none", "ms": bench.milliseconds(work), "peak GiB": bench.peak()}


def attention(bench: Bench) -> Rows:
    """Milliseconds forward and backward of each kernel, in bfloat16, eight heads of 64."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # as a model does; "cudnn" switches it on
    for length in (16, 32, 64, 128, 512):
        count = max(1, bench.tokens // length)
        lengths = torch.full((count, 1), length).sub_(torch.arange(count)[:, None] % 3)
        seen = torch.arange(length)[None] < lengths
        # batch source -> batch 1 1 source
        padded = AttentionBias(mask=seen.to(bench.device)[:, None, None, :])
        where = torch.arange(length, device=bench.device)
        causal = AttentionBias(queries=where, keys=where, causal=True)
        for name, bias in (("padded", padded), ("causal", causal)):
            heads = _heads(bench, count, length)
            row: dict[str, Any] = {"length": length, "mask": name}
            for kernel, call in KERNELS.items():
                row[kernel] = _attend(bench, call, heads, bias)
            yield row


def _heads(bench: Bench, rows: int, length: int) -> list[Tensor]:
    made = [torch.randn(rows, length, 8, 64, device=bench.device) for _ in range(4)]
    return [one.bfloat16().transpose(1, 2).requires_grad_() for one in made]


def _attend(bench: Bench, kernel: Kernel, heads: list[Tensor], bias: AttentionBias) -> float | str:
    query, key, value, upstream = heads

    def work(_: int) -> None:
        attended = kernel(query, key, value, bias, 0.0)
        torch.autograd.grad(attended, (query, key, value), upstream)

    try:
        return bench.milliseconds(work)
    except (InputError, RuntimeError):  # as cuDNN says it
        return "cannot"
