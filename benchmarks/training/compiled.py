"""Speed of ``trainer.compile=layers`` on this CPU.

    python -m benchmarks.training.compiled [--updates 8] [KEY=VALUE…]

Forward, backward and Adam on the first batches of a run, with layers as they are written and
compiled, in one process and in turns. Prints target tokens a second of the processor time of one
thread, the median of the turns, and the seconds of the turn that compiles, which is not counted.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import islice
from tempfile import TemporaryDirectory

import torch

from benchmarks.support.training_subjects import composed
from transformer.data.batching.batch import Batch
from transformer.settings.run import RunConfig
from transformer.tasks.registry import make_task
from transformer.training.cpu_allocator import keep_freed_memory, keep_products
from transformer.training.optimization import build_optimizer

TURNS = 5


def update(config: RunConfig) -> tuple[Callable[[Batch], None], list[Batch]]:
    """A function that updates a new model on a batch, and the batches of the training text."""
    task = make_task(config)
    task.data.prepare_data()
    task.data.setup("fit")
    module = task.module.train()
    adam = build_optimizer(config.optimizer, module)
    narrow = config.trainer.precision == "bf16-mixed"

    def run(batch: Batch) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            loss, tokens, _ = module.micro_loss(batch)
        loss.backward()
        module.normalize(tokens, adam)
        adam.step()
        adam.zero_grad()

    return run, [each.batches[0] for each in islice(task.data.train_dataloader(), 200)]


def main() -> None:
    """Measure both in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_products()
    keep_freed_memory()
    with TemporaryDirectory() as folder:
        runs = {}
        for name in ("none", "layers"):
            key = f"trainer.compile={name}"
            runs[name] = update(composed(folder, [*arguments.overrides, key]))
    batches = runs["none"][1][: arguments.updates]
    tokens = sum(batch.target_tokens for batch in batches)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(1 + TURNS):
        for name, (run, _) in runs.items():
            began = time.process_time()
            for batch in batches:
                run(batch)
            seconds[name].append(time.process_time() - began)
    ratios = [none / layers for none, layers in zip(*seconds.values(), strict=True)][1:]
    found = {
        **{name: round(tokens / statistics.median(s[1:])) for name, s in seconds.items()},
        "times": round(statistics.median(ratios), 2),
        "from": round(min(ratios), 2),
        "to": round(max(ratios), 2),
        "first turn": round(seconds["layers"][0]),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
