"""Training on packed batches beside padded ones: target tokens a second, and padding.

    python -m benchmarks.packing [--updates 20] data=multi30k model=base [KEY=VALUE…]

Forward, loss, backward and Adam on the batches of a run with these settings, in turns: an update
on a padded batch, one on a packed batch, and so on, after two of each that are not counted. On a
CPU it measures the processor time of one thread, on a GPU (``--device cuda``, in ``bf16-mixed``)
the time until the GPU is done. The last line is JSON. It does not know how well anything is learnt.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from omegaconf import OmegaConf

from transformer.cli.config.compose import compose_config
from transformer.tasks.registry import make_task
from transformer.training.config import run_config
from transformer.training.optimization.cpu_allocator import keep_freed_memory
from transformer.training.optimization.optimizer import build_optimizer


def updates(overrides: list[str], device: str) -> Iterator[tuple[float, float]]:
    """Train; yield target tokens a second of each update, and the fraction of padding."""
    config = run_config(OmegaConf.to_container(compose_config("train", overrides)))  # type: ignore[arg-type]
    task = make_task(config)
    task.data.prepare_data()
    torch.manual_seed(1)
    module: Any = task.module.to(device).train()
    optimizer = build_optimizer(config.optimizer, module.model.parameters())
    for update in task.data.train_dataloader():
        [batch] = update.to(device).batches
        begin = clock(device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss, tokens, _ = module.micro_loss(batch)
        (loss / tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield tokens / (clock(device) - begin), 1 - update.tokens / update.positions


def clock(device: str) -> float:
    """Seconds: of the processor, or once the GPU has nothing left to do."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    """Time both in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("overrides", nargs="+")
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    runs = {
        name: updates([*arguments.overrides, f"data.packing={packing}"], arguments.device)
        for name, packing in (("padded", "false"), ("packed", "true"))
    }
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for index in range(arguments.updates + 2):
        for name, run in runs.items():
            of_update = next(run)
            if index >= 2:
                measured[name].append(of_update)
    result = {}
    for name, pairs in measured.items():
        speed = statistics.median(tokens for tokens, _ in pairs)
        padding = statistics.mean(fraction for _, fraction in pairs)
        result[name] = {"tokens_per_second": round(speed), "padding": round(padding, 4)}
        print(f"{name}: {speed:,.0f} target tokens/s")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
