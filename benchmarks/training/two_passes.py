"""Time of the second pass over each batch: the step of R-Drop beside the plain one.

    python benchmarks/training/two_passes.py [--tokens 4096] [--repeats 15] [KEY=VALUE…]

Forward, loss, backward and Adam at the size of model=tiny, on random sentences. The plain step is
timed on the same batch as well, and on that batch twice over, which is as much work for the layers:
what the divergence itself costs is the difference from that. Interleaved repeats, medians of the
processor time of one thread; the last line is JSON. It does not know how well anything is learned.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from transformer.cli.config import compose_config, run_settings
from transformer.data.batching.batch import Batch, collate
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.build import build_transformer
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import TokenizerConfig
from transformer.tasks.translation import TranslationModule
from transformer.training.cpu_allocator import keep_freed_memory
from transformer.training.optimization import build_optimizer

VOCABULARY = 6000
LONGEST = 24
SETTINGS = ["~experiment", "model=tiny", "model.dropout=0.3", "loss.bfloat16=true"]
PLAIN = "plain, the batch twice over"


def config_of(*overrides: str) -> RunConfig:
    """A run as ``train.py`` would see it."""
    return run_settings(compose_config("train", overrides))


def batch_of(tokens: int, times: int = 1) -> Batch:
    """Random sentences that fill a budget of target tokens, once or several times over."""
    random = np.random.default_rng(1)
    lengths = random.integers(LONGEST // 2, LONGEST, tokens // LONGEST)
    rows = [random.integers(4, VOCABULARY, length).tolist() for length in lengths]
    return collate(rows * times, rows[::-1] * times)


def build_step(overrides: list[str], batch: Batch) -> Callable[[], float]:
    """A training step, which returns the seconds of the processor that it took."""
    config = config_of(*SETTINGS, *overrides)
    torch.manual_seed(1)
    model = build_transformer(config.model.sized(VOCABULARY, VOCABULARY))
    optimizer = build_optimizer(config.optimizer, model)
    unused = Tokenizer.train(
        TokenizerConfig(algorithm="char", vocab_size=None), lambda: [("a", "b")]
    )
    module = TranslationModule(config, unused, model=model).train()

    def step() -> float:
        begin = time.process_time()
        with torch.autocast("cpu", torch.bfloat16):
            loss, tokens, _ = module.micro_loss(batch)
        (loss / tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.process_time() - begin

    return step


def main() -> None:
    """Time all, in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    batch = batch_of(arguments.tokens)
    more = arguments.overrides
    dropping = ["model.source_token_dropout=0.1", "model.target_token_dropout=0.1"]
    steps = {
        PLAIN: build_step(more, batch_of(arguments.tokens, 2)),
        "loss=r_drop": build_step(["loss=r_drop", *more], batch),
        "plain, the batch": build_step(more, batch),
        "token dropout, the batch": build_step([*dropping, *more], batch),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(arguments.repeats + 2):
        for name, step in steps.items():
            taken = step()
            if repeat >= 2:
                seconds[name].append(taken)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    for name, median in medians.items():
        print(f"{name:28s} {1e3 * median:7.1f} ms  {median / medians[PLAIN]:.2f}")
    print(json.dumps({name: round(median, 4) for name, median in medians.items()}))


if __name__ == "__main__":
    main()
