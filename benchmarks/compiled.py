"""Whether ``trainer.compile=layers`` pays on this CPU.

    python -m benchmarks.compiled [--threads 2] [--updates 20] [KEY=VALUE…]

Forward, backward and Adam on the first batches of a run, with layers as they are written and
compiled, in one process and in turns. Prints target tokens a second of the median turn, and the
number of compiled graphs. Compiling itself is not counted.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import islice
from tempfile import TemporaryDirectory

import torch
from torch._dynamo.utils import counters

from benchmarks.training_subjects import composed
from transformer.data.batching.batch import Batch
from transformer.tasks.registry import make_task
from transformer.training.config import RunConfig
from transformer.training.optimization.cpu_allocator import keep_freed_memory, keep_products
from transformer.training.optimization.optimizer import build_optimizer

TURNS = 5


def update(config: RunConfig) -> tuple[Callable[[Batch], None], list[Batch]]:
    """A function that updates a new model on a batch, and the batches of the training text."""
    task = make_task(config)
    task.data.prepare_data()
    task.data.setup("fit")
    module = task.module.train()
    adam = build_optimizer(config.optimizer, module.parameters())
    narrow = config.trainer["precision"] == "bf16-mixed"

    def run(batch: Batch) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            loss, tokens, _ = module.micro_loss(batch)
        loss.backward()
        module._normalised(tokens)
        adam.step()
        adam.zero_grad()

    return run, [each.batches[0] for each in islice(task.data.train_dataloader(), 200)]


def main() -> None:
    """Measure both in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_products()
    keep_freed_memory()
    with TemporaryDirectory() as folder:
        runs = {}
        for name in ("none", "layers"):
            key = f"trainer.compile={name}"
            runs[name] = update(composed(folder, [*arguments.overrides, key]))
    batches = runs["none"][1][: arguments.updates]
    tokens = sum(batch.target_tokens for batch in batches)
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(TURNS + 1):
        for name, (run, _) in runs.items():
            began = time.perf_counter()
            for batch in batches:
                run(batch)
            # The first turn compiles.
            speeds[name] += [tokens / (time.perf_counter() - began)] * (turn > 0)
    found = {name: statistics.median(of_one) for name, of_one in speeds.items()}
    ratios = [layers / none for layers, none in zip(speeds["layers"], speeds["none"], strict=True)]
    print(
        json.dumps(
            {
                **{f"{name}, tokens/s": round(speed) for name, speed in found.items()},
                "times": round(statistics.median(ratios), 2),
                "turns": [round(ratio, 2) for ratio in ratios],
                "graphs": counters["stats"]["unique_graphs"],
            }
        )
    )


if __name__ == "__main__":
    main()
