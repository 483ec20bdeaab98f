"""Attention by the formula against torch's fused kernel, in batches as training on a CPU has them.

    python benchmarks/kernels.py [--threads 2] [--repeats 7]

Milliseconds of forward and backward, the median of interleaved repeats, of 4,096 tokens in
sentences of equal length; bfloat16 is under autocast. ``kernels.SHORT`` is chosen by it. Prints the
table of docs/performance.md, and as its last line JSON.
"""

import argparse
import json
import statistics
import time

import torch
from torch import Tensor

from benchmarks.trained import markdown
from transformer.model.attention import attend, attend_fused

TOKENS = 4096
HEADS = ((4, 32), (8, 64))
LENGTHS = (16, 32, 64, 128, 512)
CASES = {
    f"{name}, {precision}": (fused, precision)
    for precision in ("float32", "bfloat16")
    for name, fused in (("formula", False), ("fused", True))
}


def step(heads: tuple[Tensor, Tensor, Tensor], fused: bool, precision: str) -> float:
    """Milliseconds of one forward and backward pass."""
    began = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        found = attend_fused(*heads) if fused else attend(*heads)[0]
    found.sum().backward()
    return (time.perf_counter() - began) * 1000


def measure(count: int, width: int, length: int, repeats: int) -> dict[str, float]:
    """Each case, in turn; the first turn is not counted."""
    shape = (TOKENS // length, count, length, width)
    query, key, value = (torch.randn(shape).requires_grad_() for _ in range(3))
    taken: dict[str, list[float]] = {name: [] for name in CASES}
    for turn in range(repeats + 1):
        for name, (fused, precision) in CASES.items():
            found = step((query, key, value), fused, precision)
            if turn:
                taken[name].append(found)
    return {name: round(statistics.median(times), 1) for name, times in taken.items()}


def main() -> None:
    """Measure all shapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    found = {
        (f"{count} of {width}", length): measure(count, width, length, arguments.repeats)
        for count, width in HEADS
        for length in LENGTHS
    }
    rows = [
        [heads, str(length), *(f"{value:.1f}" for value in times.values())]
        for (heads, length), times in found.items()
    ]
    print("\n".join(markdown(["heads", "tokens a sentence", *CASES], rows)))
    print(json.dumps({f"{heads}, {length}": times for (heads, length), times in found.items()}))


if __name__ == "__main__":
    main()
