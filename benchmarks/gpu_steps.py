"""How benchmarks/gpu.py measures, and its cases on bare updates.

A bare update is the model's forward and backward pass and Adam on batches that are on the card
already: what a run, with its loader, logs and checks, can reach at best.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_cost import Size
from transformer.cli.config.compose import compose_config
from transformer.common.errors import is_out_of_memory
from transformer.data.batching.batch import Batch, collate
from transformer.model.build import build_transformer
from transformer.tasks.base import change_layers
from transformer.tasks.translation_module import TranslationModule
from transformer.training.config import RunConfig, run_config, sized_model
from transformer.training.optimization.optimizer import build_optimizer

Rows = Iterable[dict[str, Any]]
"""Of a table; the keys are its columns. Where it takes time, a row is there once it is measured."""

SETTINGS = (
    *("model=base", "schedule=noam", "optimizer.lr=1.0", "precision=bf16-mixed"),
    "loss.chunk=8192",  # as in trainer=gpu
)
LAYERS: dict[str, Sequence[str]] = {"eager": (), "compiled": ["trainer.compile=layers"]}
"""Ways to run the layers, with their settings."""
LONGEST = (10, 60)
"""Subwords of the longest source of a batch; the others are up to a tenth shorter."""


@dataclass(frozen=True)
class Bench:
    """What is measured, and for how long; the defaults are those of the command.

    Attributes:
        device: The card.
        folder: For text, caches and runs.
        settings: Of the config.
        budgets: Tokens of a batch, of each side; ``tokens`` where a case takes one.
        vocabulary: Subwords.
        pairs: Sentence pairs of the text.
        matrix: Width of the square matrices that measure the card.
        warm_up, turns, updates: A time is the median of the turns, after the warm-up.
    """

    device: torch.device
    folder: Path
    settings: Sequence[str] = SETTINGS
    budgets: Sequence[int] = (4096, 12_500, 25_000, 50_000, 100_000)
    tokens: int = 25_000
    vocabulary: int = 32_000
    pairs: int = 50_000
    matrix: int = 8192
    warm_up: int = 20
    turns: int = 3
    updates: int = 20

    @property
    def overrides(self) -> Sequence[str]:
        """The settings, without the recipe of the default corpus."""
        return "data=files", *self.settings

    def values(self, *overrides: str) -> Any:
        """The composed config as plain values."""
        composed = compose_config("train", [*self.overrides, *overrides])
        return OmegaConf.to_container(composed, resolve=True)

    def config(self, *overrides: str) -> RunConfig:
        """The config."""
        return run_config(self.values(*overrides))

    def milliseconds(self, work: Callable[[int], object]) -> float:
        """The time of a call, which gets its number."""
        for number in range(self.warm_up):
            work(number)
        taken = []
        for _ in range(self.turns):
            watch = Stopwatch(self.device)
            for number in range(self.updates):
                work(number)
            taken.append(watch.stop() / self.updates)
        return statistics.median(taken)

    def peak(self) -> float:
        """GiB that were allocated on the card at most since the last call."""
        if self.device.type != "cuda":
            return 0.0
        gc.collect()  # modules that are done with refer to themselves
        peak = torch.cuda.max_memory_allocated(self.device) / 2**30
        torch.cuda.reset_peak_memory_stats(self.device)
        return peak


class Stopwatch:
    """Milliseconds on a device from now on: by CUDA events, or by the clock of the host."""

    def __init__(self, device: torch.device) -> None:
        self.events: list[Any] = []
        if device.type == "cuda":
            self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self.events[0].record()
        self.began = time.perf_counter()

    def stop(self) -> float:
        """Wait for the device, and give the time."""
        if not self.events:
            return (time.perf_counter() - self.began) * 1000
        began, ended = self.events
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended))


class BareStep:
    """Updates of a new model without Lightning, loader, logs and checks."""

    def __init__(self, bench: Bench, *overrides: str) -> None:
        config = bench.config(*overrides)
        size = bench.vocabulary
        model = build_transformer(sized_model(config.model, size, size))
        settings = {name: getattr(config, name) for name in ("loss", "optimizer", "schedule")}
        settings |= {"recovery": config.recovery, "clip": config.trainer["gradient_clip_val"]}
        module = TranslationModule(model, seed=config.seed, portable={}, **settings)
        change_layers(module, config)
        self.module = module.to(bench.device).train()
        self.adam = build_optimizer(config.optimizer, model.parameters())
        self.narrow = config.trainer["precision"] == "bf16-mixed"
        self.size = Size.of(config.model, size)

    def __call__(self, batch: Batch) -> None:
        """Update once."""
        with torch.autocast(self.module.device.type, torch.bfloat16, enabled=self.narrow):
            loss, tokens, _ = self.module.micro_loss(batch)
        loss.backward()
        self.module._normalised(tokens)
        self.adam.step()
        self.adam.zero_grad()


def made_batches(bench: Bench, tokens: int, count: int) -> list[Batch]:
    """Random sentence pairs in memory of the host; no side has more tokens, padding included."""
    random = np.random.default_rng(1)

    def side(rows: int, longest: int) -> list[np.ndarray]:
        lengths = random.integers(longest * 9 // 10, longest, rows, endpoint=True)
        return [random.integers(4, bench.vocabulary, length) for length in lengths]

    made = []
    for longest in random.integers(*LONGEST, count, endpoint=True).tolist():
        rows = max(1, tokens // (longest + 1))
        shorter = int(random.integers(longest * 8 // 10, longest, endpoint=True))
        made.append(collate(side(rows, longest), side(rows, shorter)))
    return made


def matrix_rate(bench: Bench, dtype: torch.dtype) -> float:
    """TFLOP/s of the product of two large square matrices."""
    shape = bench.matrix, bench.matrix
    left, right = (torch.randn(shape, device=bench.device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(left)
    taken = bench.milliseconds(lambda _: torch.mm(left, right, out=out))
    return 2 * bench.matrix**3 / taken / 1e9


def shapes(bench: Bench) -> Rows:
    """What a shape costs that the card meets for the first time."""
    bare, count = BareStep(bench), bench.turns * bench.updates
    batches = [batch.to(bench.device) for batch in made_batches(bench, bench.tokens, count)]
    other = made_batches(bench, bench.tokens // 2, 1)[0].to(bench.device)
    for _ in range(bench.warm_up):
        bare(other)
    for seen in ("for the first time", "again"):
        watch = Stopwatch(bench.device)
        for batch in batches:
            bare(batch)
        yield {"batches": f"{count} seen {seen}", "ms an update": watch.stop() / count}


def step(bench: Bench) -> Rows:
    """Bare updates with batches of more and more tokens."""
    rate = matrix_rate(bench, torch.bfloat16)
    for layers, overrides in LAYERS.items():
        for tokens in bench.budgets:
            row: dict[str, Any] = {"layers": layers, "tokens of a batch": tokens}
            try:
                row |= bare_updates(bench, overrides, tokens, rate)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                row["target tokens/s"] = "out of memory"
            yield row


def bare_updates(
    bench: Bench, overrides: Sequence[str], tokens: int, rate: float
) -> dict[str, float]:
    """Speed, work, launches and memory of updates with batches of so many tokens."""
    bare, batches = BareStep(bench, *overrides), made_batches(bench, tokens, bench.updates)
    targets = sum(batch.target_tokens for batch in batches)
    sources = sum(batch.source_tokens for batch in batches)
    pairs = sum(batch.size for batch in batches)
    flops = bare.size.training_flops(sources / pairs, targets / pairs) * pairs
    batches = [batch.to(bench.device) for batch in batches]
    bench.peak()
    seconds = bench.milliseconds(lambda number: bare(batches[number % len(batches)])) / 1000
    seconds *= len(batches)
    return {
        "target tokens/s": targets / seconds,
        "TFLOP/s": flops / seconds / 1e12,
        "share of large products": flops / seconds / 1e12 / rate,
        "launches": launches(lambda: bare(batches[0])),
        "peak GiB": bench.peak(),
    }


def launches(work: Callable[[], object]) -> int:
    """Kernels that a call launches on the card."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as watched:
        work()
    return sum(event.count for event in watched.key_averages() if "LaunchKernel" in event.key)
