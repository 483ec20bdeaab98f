"""Attention by plain products and by torch's fused kernel, in batches as a CPU learns from them.

    python benchmarks/model/kernels.py [--threads 2] [--repeats 7]

Milliseconds of forward and backward, the median of interleaved repeats, of 4,096 tokens in
sentences of equal length; bfloat16 is under autocast. *formula* is ``attend``, *short*
``attend_short``, *fused* ``attend_fused``. ``sdpa.SHORT`` is chosen by it. Prints the table of
benchmarks/training/README.md, and as its last line JSON.
"""

import argparse
import json
import statistics
import time

import torch
from torch import Tensor

from benchmarks.support.records import markdown
from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.kernels.fused import attend_fused
from transformer.model.attention.kernels.sdpa import attend_short
from transformer.model.attention.scaled_dot_product import Kernel, eager
from transformer.training.cpu_allocator import keep_freed_memory

TOKENS = 4096
HEADS = ((4, 32), (8, 64))
LENGTHS = (15, 16, 24, 32, 64, 128, 512)
KERNELS: dict[str, Kernel] = {
    "formula": eager,
    "short": attend_short,
    "fused": lambda query, key, value, context, dropout: attend_fused(query, key, value),
}
CASES = {
    f"{name}, {precision}": (kernel, dtype)
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
    for name, kernel in KERNELS.items()
}


def attention_heads(shape: tuple[int, int, int, int], dtype: torch.dtype) -> list[Tensor]:
    """Query, key and value as projections leave them, and the gradient of the result."""
    rows, count, length, width = shape
    made = [torch.randn(rows, length, count, width).to(dtype).transpose(1, 2) for _ in range(4)]
    return [one.requires_grad_() for one in made[:3]] + made[3:]


def step(heads: list[Tensor], kernel: Kernel) -> float:
    """Milliseconds of one forward and backward pass."""
    query, key, value, upstream = heads
    began = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=query.dtype == torch.bfloat16):
        attended = kernel(query, key, value, AttentionContext(), 0.0)
    torch.autograd.grad(attended, (query, key, value), upstream)
    return (time.perf_counter() - began) * 1000


def measure(count: int, width: int, length: int, repeats: int) -> dict[str, float]:
    """Each case, in turn; the first turn is not counted."""
    shape = (TOKENS // length, count, length, width)
    heads = {dtype: attention_heads(shape, dtype) for _, dtype in CASES.values()}
    taken: dict[str, list[float]] = {name: [] for name in CASES}
    for turn in range(repeats + 1):
        for name, (kernel, dtype) in CASES.items():
            found = step(heads[dtype], kernel)
            if turn:
                taken[name].append(found)
    return {name: round(statistics.median(times), 1) for name, times in taken.items()}


def main() -> None:
    """Measure all shapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    results = {
        (f"{count} of {width}", length): measure(count, width, length, arguments.repeats)
        for count, width in HEADS
        for length in LENGTHS
    }
    rows = [
        [heads, str(length), *(f"{value:.1f}" for value in times.values())]
        for (heads, length), times in results.items()
    ]
    print("\n".join(markdown(["heads", "tokens a sentence", *CASES], rows)))
    print(json.dumps({f"{heads}, {length}": times for (heads, length), times in results.items()}))


if __name__ == "__main__":
    main()
