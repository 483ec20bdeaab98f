"""Cases of benchmarks/gpu.py on whole runs and whole searches, on made-up text.

It does not know how a case is started, or where its numbers go.
"""

import csv
import math
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from benchmarks.gpu_steps import BareStep, Bench, Rows, Stopwatch
from benchmarks.made_up_text import write_text
from transformer.data.batching.loader import Update
from transformer.runs.resume_check import check_resume
from transformer.runs.train import fit
from transformer.tasks.registry import make_task

ROOT = Path(__file__).resolve().parents[1]
SYNCHRONIZING = "called a synchronizing CUDA operation"
"""What torch warns of in its sync debug mode."""
MEMORY = 4
"""GiB of the card that the case of too little memory leaves to a run."""


class Enough(Exception):
    """Ends a run that has been watched for long enough."""


def run_settings(
    bench: Bench, *overrides: str, trainer: str | None = None, decoding: str = "greedy"
) -> list[str]:
    """A run on made-up text, which is written if it is not there."""
    for name, pairs, seed in (("train", bench.pairs, 1), ("val", 20, 2)):
        file = bench.folder / f"{name}-{pairs}.tsv"
        if not file.exists():
            part = file.with_suffix(".part")
            write_text(part, pairs, seed)
            part.replace(file)
    device = "gpu" if bench.device.type == "cuda" else "cpu"
    return [
        f"data.train={bench.folder}/train-{bench.pairs}.tsv",
        *(f"data.validation={bench.folder}/val-20.tsv", "data.test_size=0"),
        *(f"data.cache={bench.folder}/cache", f"data.batch_tokens={bench.tokens}"),
        *(
            "data.workers=2",
            f"tokenizer.vocab_size={bench.vocabulary}",
            f"trainer={trainer or device}",
        ),
        *(f"decoding={decoding}", "callbacks.samples=0", "logger.tensorboard=false", "test=false"),
        *overrides,
    ]


def new_folder(bench: Bench) -> Path:
    """For a run that nothing is resumed from."""
    return Path(tempfile.mkdtemp(prefix="run-", dir=bench.folder))


class Watch(Callback):
    """Calls ``see`` with the number of each update, from 0 on, after it."""

    def __init__(self, see: Callable[[int, Update[Any]], None]) -> None:
        self.see, self.done = see, 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count."""
        self.done += 1
        self.see(self.done, batch)


def watched(bench: Bench, see: Callable[[int, Update[Any]], None], *overrides: str) -> None:
    """Run until ``see`` has seen enough."""
    try:
        fit(bench.config(*run_settings(bench, *overrides)), new_folder(bench), [Watch(see)])
    except Enough:
        return
    raise RuntimeError("the run ended before it was watched for long enough")


def syncs(bench: Bench) -> Rows:
    """Waits of the host for the card in some updates of a run, by the line that waits."""
    caught: list[warnings.WarningMessage] = []

    def see(done: int, update: Update[Any]) -> None:
        nonlocal caught
        if done == bench.warm_up:
            caught = recording.enter_context(warnings.catch_warnings(record=True))
            warnings.simplefilter("always")
            if bench.device.type == "cuda":
                torch.cuda.set_sync_debug_mode("warn")
        elif done == bench.warm_up + bench.updates:
            recording.close()  # what ends a run waits, too
            if bench.device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")
            raise Enough

    with ExitStack() as recording:
        watched(bench, see)
    return waits(caught, bench.updates)


def waits(caught: Sequence[warnings.WarningMessage], updates: int) -> Rows:
    """The rows of ``syncs``."""
    lines = Counter(
        f"{Path(warning.filename).name}:{warning.lineno}"
        for warning in caught
        if SYNCHRONIZING in str(warning.message)
    )
    counts = [("all", lines.total()), *lines.most_common()]
    return [{"line": line, "waits an update": count / updates} for line, count in counts]


def train(bench: Bench) -> Rows:
    """A whole run beside the bare update on batches of the same text, in tokens of both sides."""
    task = make_task(bench.config(*run_settings(bench)))
    task.data.prepare_data()
    task.data.setup("fit")
    batches = [update.batches[0] for update in islice(task.data.train_dataloader(), bench.updates)]
    task.data.teardown("fit")
    tokens = sum(batch.tokens for batch in batches) / len(batches)
    batches = [batch.to(bench.device) for batch in batches]
    bare = BareStep(bench)
    taken = bench.milliseconds(lambda number: bare(batches[number % len(batches)]))
    del bare, batches
    alone = tokens / taken * 1000
    yield {"what": "bare update", "tokens/s": alone}
    whole = run_speed(bench)
    yield {"what": "run", "tokens/s": whole, "share": whole / alone}


def run_speed(bench: Bench) -> float:
    """Tokens of both sides that a run trains on in a second."""
    speeds: list[float] = []
    tokens, watch = 0, Stopwatch(bench.device)

    def see(done: int, update: Update[Any]) -> None:
        nonlocal tokens, watch
        tokens += update.tokens
        since = done - bench.warm_up
        if since < 0 or since % bench.updates:
            return
        if since:
            speeds.append(tokens / watch.stop() * 1000)
        if len(speeds) == bench.turns:
            raise Enough
        tokens, watch = 0, Stopwatch(bench.device)

    watched(bench, see)
    return statistics.median(speeds)


def oom(bench: Bench) -> Rows:
    """A run with batches that do not fit into a small part of the card: they are halved."""
    if bench.device.type == "cuda":
        total = torch.cuda.get_device_properties(bench.device).total_memory
        torch.cuda.set_per_process_memory_fraction(MEMORY * 2**30 / total)
    tokens = max(bench.budgets)
    settings = run_settings(bench, f"data.batch_tokens={tokens}", "trainer.max_steps=3")
    _, task, trained = fit(bench.config(*settings), new_folder(bench))
    largest = task.module.accumulate.max_positions
    row = {"tokens of a batch": tokens, "GiB": MEMORY, "updates made": trained}
    halved = "all" if math.isinf(largest) else int(largest)
    return [row | {"largest batch in one piece, both sides": halved, "peak GiB": bench.peak()}]


def resume(bench: Bench) -> Rows:
    """Whether a run that is stopped and resumed equals one that was not."""
    values = bench.values(*run_settings(bench))
    return [{"found": check_resume(values, new_folder(bench), bench.updates // 2)}]


def ddp(bench: Bench) -> Rows:
    """Runs on one card and on all, each with the same batches a card."""
    cuda = bench.device.type == "cuda"
    cards = torch.cuda.device_count() if cuda else 2
    if cards < 2:
        return [{"cards": "one is here: there is nothing to compare"}]
    rows: list[dict[str, Any]] = []
    for count in (1, cards):
        folder = new_folder(bench)
        where = "gpu" if cuda else "cpu"
        arguments = [
            *(sys.executable, "-m", "transformer", "train", *bench.overrides),
            *run_settings(bench, trainer="ddp"),
            *(f"trainer.accelerator={where}", f"trainer.devices={count}"),
            *(f"trainer.max_steps={bench.warm_up + bench.turns * bench.updates}",),
            *(f"trainer.log_every_n_steps={bench.updates}", f"hydra.run.dir={folder}"),
        ]
        subprocess.run(arguments, cwd=ROOT, check=True, stdout=sys.stderr)
        speed = logged_speed(folder / "metrics.csv")
        alone = rows[0]["target tokens/s"] if rows else speed
        share = speed / alone / count
        rows.append({"cards": count, "target tokens/s": speed, "share of linear": share})
    return rows


def logged_speed(file: Path) -> float:
    """Median of the speeds that a run has logged, but for the first."""
    with file.open(newline="") as lines:
        logged = [row["train/tokens_per_second"] for row in csv.DictReader(lines)]
    return statistics.median([float(speed) for speed in logged if speed][1:])
