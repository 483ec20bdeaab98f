"""Time and memory of self-attention over long sequences, full and sliding.

    python benchmarks/model/attention.py [--lengths 1024 2048 4096] [--window 64] [--quick]

Time (median of interleaved repeats) and peak memory of forward and backward of one attention of
four heads of width 64, each case in a process of its own. The last line is JSON.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

CASES = {
    "eager full": ("eager", "full"),
    "sdpa full": ("sdpa", "full"),
    "sdpa sliding": ("sdpa", "sliding"),
    "flex sliding": ("flex", "sliding"),
    "flex longformer": ("flex", "longformer"),
    "flex bigbird": ("flex", "bigbird"),
}
HEADS = 4
HEAD_DIM = 64
GLOBAL_TOKENS = 1
RANDOM_BLOCKS = 2


def measure(kernel_name: str, pattern_name: str, length: int, window: int) -> tuple[float, float]:
    """Seconds and MiB of one forward and backward pass, in this process."""
    import torch

    from transformer.model.attention.attention_context import StackContext
    from transformer.model.attention.kernels.flex import flex
    from transformer.model.attention.kernels.sdpa import Sdpa
    from transformer.model.attention.scaled_dot_product import Kernel, eager
    from transformer.model.attention.sparse_patterns import BigBird, Longformer, Sliding

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    kernels: dict[str, Kernel] = {"eager": eager, "sdpa": Sdpa(), "flex": flex}
    pattern = {
        "full": None,
        "sliding": Sliding(window),
        "longformer": Longformer(window, GLOBAL_TOKENS),
        "bigbird": BigBird(window, GLOBAL_TOKENS, RANDOM_BLOCKS, window, seed=1),
    }[pattern_name]
    stack = StackContext(pattern=pattern)

    def inputs(positions: int) -> list[torch.Tensor]:
        shape = (1, HEADS, positions, HEAD_DIM)
        return [torch.randn(shape, device=device, dtype=dtype).requires_grad_() for _ in range(3)]

    def step(heads: list[torch.Tensor]) -> None:
        positions = heads[0].size(2)
        context = stack(positions, 0, None, device)
        kernels[kernel_name](heads[0], heads[1], heads[2], context, 0.0).sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    # What a first step loads is not the pattern's.
    step(inputs(2 * window))
    idle = _peak_memory(device.type)
    step(inputs(length))
    memory = _peak_memory(device.type) - idle
    heads = inputs(length)
    start = time.perf_counter()
    step(heads)
    return time.perf_counter() - start, memory


def _peak_memory(device: str) -> float:
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def in_process(kernel: str, pattern: str, length: int, window: int) -> tuple[float, float]:
    """Measure apart from whatever other cases leave in memory."""
    command = [sys.executable, __file__, "--case", kernel, pattern, str(length), str(window)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ, check=True)
    seconds, memory = json.loads(done.stdout)
    return seconds, memory


def compare(lengths: list[int], window: int, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Median seconds and MiB of every case at every length."""
    found: dict[str, dict[str, list[float]]] = {}
    for length in lengths:
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
        for _ in range(repeats):
            for name, (kernel, pattern) in CASES.items():
                runs[name].append(in_process(kernel, pattern, length, window))
        print(f"\n{length} tokens{'':8}milliseconds   MiB", file=sys.stderr)
        for name, results in runs.items():
            seconds, memory = (statistics.median(column) for column in zip(*results, strict=True))
            found.setdefault(name, {})[str(length)] = [round(seconds, 5), round(memory, 1)]
            print(f"{name:18} {1000 * seconds:12.1f} {memory:7.0f}", file=sys.stderr)
    return found


def main() -> None:
    """Run the cases, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="one repeat, 4096 tokens")
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        kernel, pattern, length, window = arguments.case
        print(json.dumps(measure(kernel, pattern, int(length), int(window))))
        return
    lengths, repeats = ([4096], 1) if arguments.quick else (arguments.lengths, 3)
    print(json.dumps(compare(lengths, arguments.window, repeats)))


if __name__ == "__main__":
    main()
