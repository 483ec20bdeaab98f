"""Processor time and memory of an update on long sources, by pattern of the encoder.

    python -m benchmarks.model.long_sources [--length 1024] [--rows 4] [--repeats 5] [KEY=VALUE…]

Forward, loss, backward and Adam of the model of ``experiment=summarization`` on one thread, with
random tokens and targets of 32 tokens. Each case runs in a process of its own, all in turns, and
the median counts. Memory is the peak above that of a model that has made an update on short
sources. The last line is JSON. It does not know how well anything is learned.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

PATTERNS = ("full", "sliding", "longformer", "bigbird")
VOCABULARY = 8000
TARGET = 32


def measure(overrides: list[str], length: int, rows: int) -> tuple[float, float]:
    """Seconds and MiB of one update, in this process."""
    import torch
    from torch.nn import functional as F

    from transformer.cli.config import compose_config
    from transformer.model.build import build_transformer
    from transformer.settings.model import ModelConfig
    from transformer.training.cpu_allocator import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    config = compose_config("train", ["experiment=summarization", *overrides])
    sizes: Any = {"source_vocab_size": VOCABULARY, "target_vocab_size": VOCABULARY}
    model = build_transformer(ModelConfig(**config.model, **sizes, pad=0))
    optimizer = torch.optim.Adam(model.parameters())

    def update(positions: int) -> None:
        source = torch.randint(4, VOCABULARY, (rows, positions))
        # A batch nearly always has padding.
        source[0, -8:] = 0
        target = torch.randint(4, VOCABULARY, (rows, TARGET))
        with torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16-mixed"):
            logits = model.logits(model(source, target))
        F.cross_entropy(logits.flatten(0, 1).float(), target.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    update(TARGET)
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    update(length)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle
    begin = time.process_time()
    update(length)
    return time.process_time() - begin, memory / 2**10


def main() -> None:
    """Run all cases, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    if options.case:
        case = [*options.overrides, f"model.pattern={options.case}"]
        print(json.dumps(measure(case, options.length, options.rows)))
        return
    command = [sys.executable, "-m", "benchmarks.model.long_sources", *sys.argv[1:], "--case"]
    measured: dict[str, list[tuple[float, float]]] = {pattern: [] for pattern in PATTERNS}
    for _ in range(options.repeats):
        for pattern, results in measured.items():
            done = subprocess.run([*command, pattern], check=True, capture_output=True, text=True)
            results.append(json.loads(done.stdout))
    table = {}
    for pattern, results in measured.items():
        seconds, memory = (statistics.median(column) for column in zip(*results, strict=True))
        table[pattern] = {"seconds": round(seconds, 3), "MiB": round(memory)}
        ratio = seconds / table["full"]["seconds"]
        print(f"{pattern:12} {seconds:6.2f} s {ratio:5.2f} {memory:6.0f} MiB", file=sys.stderr)
    print(json.dumps(table))


if __name__ == "__main__":
    main()
