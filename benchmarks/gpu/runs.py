"""Rows of ``python -m benchmarks.gpu`` on whole runs, on made-up text.

Most run in this process; a resumed run and one on several GPUs are processes of their own.
"""

import csv
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.distributed import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from benchmarks.gpu import updates
from benchmarks.gpu.measure import CHUNK, TOKENS, Bench, OutOfTime, Stopwatch, Values
from benchmarks.gpu.models import TINY
from benchmarks.support.made_up_text import write_text
from transformer.checkpoint.checkpoint import find_last
from transformer.cli.config import compose_config, run_settings
from transformer.data.batching.loader import Update
from transformer.runs.train import fit
from transformer.settings.run import RunConfig
from transformer.tasks.registry import make_task

ROOT = Path(__file__).resolve().parents[2]
SYNCHRONIZING = "called a synchronizing CUDA operation"
"""What torch warns of in its sync debug mode."""
MEMORY = 4
"""GiB of the GPU that the row of too little memory leaves to a run."""
PAIRS = 50_000
"""Sentence pairs of the text."""
UPDATES = 20
"""Updates of a turn of a watched run; the first turn is a warm-up."""
TURNS = 3
"""Turns of a watched run after the warm-up."""


class Enough(Exception):
    """Ends a run that has been watched for long enough."""


def text(bench: Bench) -> Values:
    """Seconds to write the text, learn its subwords and encode it, which later rows then read."""
    began = time.perf_counter()
    make_task(run_of(bench)).data.prepare_data()
    return {"pairs": bench.of(PAIRS), "s": time.perf_counter() - began}


def settings(bench: Bench, *overrides: str, trainer: str | None = None) -> list[str]:
    """A run on made-up text, which is written if it is not there."""
    files = {"train": (bench.of(PAIRS), 1), "validation": (20, 2)}
    named = {split: bench.folder / f"{split}-{pairs}.tsv" for split, (pairs, _) in files.items()}
    for split, file in named.items():
        if not file.exists():
            part = file.with_suffix(".part")
            write_text(part, *files[split])
            part.replace(file)
    tiny = [f"model.{key}={value}" for key, value in TINY.items()] if bench.small > 1 else []
    device, workers = ("gpu", 2) if bench.on_gpu else ("cpu", 0)
    return [
        "data=files",
        f"trainer={trainer or device}",
        "model=base",
        *tiny,
        "schedule=noam",
        "optimizer.lr=1.0",
        "precision=bf16-mixed",
        "decoding=greedy",
        *(f"data.{split}={file}" for split, file in named.items()),
        f"data.cache={bench.folder}/cache",
        "data.test_size=0",
        "test=false",
        f"tokenizer.vocab_size={bench.vocabulary}",
        f"data.batch_tokens={bench.of(TOKENS)}",
        f"data.workers={workers}",
        f"loss.chunk={bench.of(CHUNK)}",
        "callbacks.samples=0",
        "logger.tensorboard=false",
        *overrides,
    ]


def run_of(bench: Bench, *overrides: str) -> RunConfig:
    """The settings of a run."""
    return run_settings(compose_config("train", settings(bench, *overrides)))


def new_folder(bench: Bench) -> Path:
    """For a run that nothing is resumed from."""
    return Path(tempfile.mkdtemp(prefix="run-", dir=bench.folder))


class Watch(Callback):
    """Calls ``see`` with the number of each update, from 1 on, after it."""

    def __init__(self, bench: Bench, see: Callable[[int, Update[Any]], None]) -> None:
        self.bench = bench
        self.see = see
        self.done = 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count, and look at the deadline."""
        self.bench.check()
        self.done += 1
        self.see(self.done, batch)


def watched(bench: Bench, see: Callable[[int, Update[Any]], None], *overrides: str) -> None:
    """Run until ``see`` has seen enough."""
    try:
        fit(run_of(bench, *overrides), new_folder(bench), [Watch(bench, see)])
    except Enough:
        return
    raise RuntimeError("the run ended before it was watched for long enough")


def run(bench: Bench, *, compiled: bool = False) -> Values:
    """A whole run beside updates alone on batches of its text, in tokens of both sides."""
    task = make_task(run_of(bench))
    task.data.prepare_data()
    task.data.setup("fit")
    batches = [update.batches[0] for update in islice(task.data.train_dataloader(), 10)]
    task.data.teardown("fit")
    tokens = sum(batch.tokens for batch in batches)
    batches = [batch.to(bench.device) for batch in batches]
    alone = updates.Update(bench, "base", compiled=compiled)

    def all_of_them() -> None:
        for batch in batches:
            alone(batch)

    speed = tokens / bench.time(all_of_them)["ms"] * 1000
    del alone
    run_rate = run_speed(bench, f"trainer.compile={'layers' if compiled else 'none'}")
    return {
        "tokens/s of updates alone": speed,
        "tokens/s of the run": run_rate,
        "share": run_rate / speed,
    }


def run_speed(bench: Bench, *overrides: str) -> float:
    """Tokens of both sides that a run trains on in a second."""
    speeds: list[float] = []
    tokens = 0
    watch = Stopwatch(bench.device)
    updates = bench.of(UPDATES)

    def see(done: int, update: Update[Any]) -> None:
        nonlocal tokens, watch
        tokens += update.tokens
        if done % updates:
            return
        if done > updates:
            speeds.append(tokens / watch.stop() * 1000)
        if len(speeds) == TURNS:
            raise Enough
        tokens = 0
        watch = Stopwatch(bench.device)

    watched(bench, see, *overrides)
    return statistics.median(speeds)


def syncs(bench: Bench) -> Values:
    """Waits of the host for the GPU in an update of a run, and the lines that wait."""
    caught: list[warnings.WarningMessage] = []
    updates = bench.of(UPDATES)

    def see(done: int, update: Update[Any]) -> None:
        nonlocal caught
        if done == updates:
            caught = recording.enter_context(warnings.catch_warnings(record=True))
            warnings.simplefilter("always")
            if bench.on_gpu:
                torch.cuda.set_sync_debug_mode("warn")
        elif done == 2 * updates:
            recording.close()  # what ends a run waits, too
            raise Enough

    with ExitStack() as recording:
        if bench.on_gpu:
            recording.callback(torch.cuda.set_sync_debug_mode, "default")
        watched(bench, see)
    return waits(caught, updates)


def waits(caught: Sequence[warnings.WarningMessage], updates: int) -> Values:
    """The values of ``syncs``."""
    lines = Counter(
        f"{Path(warning.filename).name}:{warning.lineno}"
        for warning in caught
        if SYNCHRONIZING in str(warning.message)
    )
    named = ", ".join(f"{line} {count / updates:g}" for line, count in lines.most_common())
    return {"waits an update": lines.total() / updates, "of line": named or "none"}


def oom(bench: Bench) -> Values:
    """A run with batches that do not fit into a small part of the GPU: they are halved."""
    tokens = bench.of(4 * TOKENS)
    overrides = f"data.batch_tokens={tokens}", "trainer.max_steps=3"
    config = run_of(bench, *overrides)
    if bench.on_gpu:
        total = torch.cuda.get_device_properties(bench.device).total_memory
        torch.cuda.set_per_process_memory_fraction(MEMORY * 2**30 / total)
    try:
        _, task, trained = fit(config, new_folder(bench))
    finally:
        if bench.on_gpu:
            torch.cuda.set_per_process_memory_fraction(1.0)
    largest = task.module.accumulate.max_positions
    return {
        "tokens of a batch": tokens,
        "GiB": MEMORY,
        "updates made": trained,
        "largest batch in one piece, both sides": "all" if math.isinf(largest) else int(largest),
        "peak GiB": bench.peak(),
    }


def resume(bench: Bench) -> Values:
    """How far the weights of a run that ended halfway and was resumed are from those of one run."""
    updates = bench.of(UPDATES)
    callback = "callbacks.own=[benchmarks.gpu.runs:Deterministic]"
    uninterrupted_folder = new_folder(bench)
    resumed_folder = new_folder(bench)
    for folder, until in ((uninterrupted_folder, updates), (resumed_folder, updates // 2)):
        _train(bench, folder, *settings(bench, callback, f"trainer.max_steps={until}"))
    _train(
        bench,
        resumed_folder,
        f"checkpoint={resumed_folder}",
        "trust=true",
        f"trainer.max_steps={updates}",
    )
    uninterrupted, resumed = (
        find_last(folder)[1]["state_dict"] for folder in (uninterrupted_folder, resumed_folder)
    )
    distances = [(uninterrupted[name] - resumed[name]).abs().max().item() for name in uninterrupted]
    return {
        "updates": updates,
        "weights": sum(weight.numel() for weight in uninterrupted.values()),
        "largest difference": max(distances),
    }


class Deterministic(Callback):
    """Takes deterministic kernels, where torch has them, so that two runs can be equal."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Switch before the first update."""
        torch.use_deterministic_algorithms(True, warn_only=True)


def in_bfloat16(group: Any, bucket: GradBucket) -> Future[Tensor]:
    """torch's hook, which DistributedDataParallel refuses by its name where there is no NCCL."""
    return bf16_compress_hook(group, bucket)


class NarrowGradients(Callback):
    """Lets DistributedDataParallel sum gradients in bfloat16, by torch's own hook."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Register the hook before the first backward pass."""
        if isinstance(trainer.model, DistributedDataParallel):  # not on one GPU
            trainer.model.register_comm_hook(None, in_bfloat16)


def ddp(bench: Bench, *, narrow: bool = False) -> Values:
    """Target tokens a second on all GPUs beside one, each with the same batches a GPU.

    Runs are processes of their own; a rehearsal has two of a CPU. ``narrow`` gradients are in
    bfloat16 on their way.
    """
    gpus = torch.cuda.device_count() if bench.on_gpu else 2
    if gpus < 2:
        return {"GPUs": "one is here: there is nothing to compare"}
    single, all_gpus = (_logged_run(bench, count, narrow) for count in (1, gpus))
    return {
        "GPUs": gpus,
        "target tokens/s on one": single,
        "on all": all_gpus,
        "of linear": all_gpus / single / gpus,
    }


def _logged_run(bench: Bench, gpus: int, narrow: bool) -> float:
    folder = new_folder(bench)
    callbacks = ["callbacks.own=[benchmarks.gpu.runs:NarrowGradients]"] if narrow else []
    updates = bench.of(UPDATES)
    _train(
        bench,
        folder,
        *settings(bench, *callbacks, trainer="ddp"),
        f"trainer.accelerator={'gpu' if bench.on_gpu else 'cpu'}",
        f"trainer.devices={gpus}",
        f"trainer.max_steps={(TURNS + 1) * updates}",
        f"trainer.log_every_n_steps={updates}",
    )
    return logged_speed(folder / "metrics.csv")


def _train(bench: Bench, folder: Path, *overrides: str) -> None:
    """Train in a new process, which has the time that is left; a resumed run has its own folder."""
    call = [sys.executable, "-m", "transformer", "train", *overrides]
    if not any(override.startswith("checkpoint=") for override in overrides):
        call.append(f"hydra.run.dir={folder}")
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    left = None if math.isinf(bench.left) else bench.left
    try:
        subprocess.run(call, cwd=ROOT, env=environment, check=True, stdout=sys.stderr, timeout=left)
    except subprocess.TimeoutExpired:
        raise OutOfTime from None


def logged_speed(file: Path) -> float:
    """Median of the speeds that a run has logged, but for the first."""
    with file.open(newline="") as lines:
        logged = [row["train/tokens_per_second"] for row in csv.DictReader(lines)]
    return statistics.median([float(speed) for speed in logged if speed][1:])
