"""Rows of benchmarks/gpu.py whose runs are processes of their own: a restart, and several GPUs.

It does not know how a row is started, or where its numbers go.
"""

import csv
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from benchmarks.gpu_rows.bench import Bench, OutOfTime, Values
from benchmarks.gpu_rows.runs import TURNS, UPDATES, new_folder, settings
from transformer.checkpoint.checkpoint import find_last

ROOT = Path(__file__).resolve().parents[2]


def resume(bench: Bench) -> Values:
    """How far the weights of a run that ended halfway and was resumed are from those of one run."""
    updates = bench.of(UPDATES)
    own = "callbacks.own=[benchmarks.gpu_rows.processes:Deterministic]"
    once, broken = new_folder(bench), new_folder(bench)
    for folder, until in ((once, updates), (broken, updates // 2)):
        _train(bench, folder, *settings(bench, own, f"trainer.max_steps={until}"))
    _train(bench, broken, f"checkpoint={broken}", "trust=true", f"trainer.max_steps={updates}")
    one, other = (find_last(folder)[1]["state_dict"] for folder in (once, broken))
    distances = [(one[name] - other[name]).abs().max().item() for name in one]
    return {
        "updates": updates,
        "weights": sum(weight.numel() for weight in one.values()),
        "largest difference": max(distances),
    }


class Deterministic(Callback):
    """Takes deterministic kernels, where torch has them, so that two runs can be equal."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Switch before the first update."""
        torch.use_deterministic_algorithms(True, warn_only=True)


def ddp(bench: Bench) -> Values:
    """Target tokens a second on all GPUs beside one, each with the same batches a GPU.

    Runs are processes of their own; a rehearsal has two of a CPU.
    """
    gpus = torch.cuda.device_count() if bench.on_gpu else 2
    if gpus < 2:
        return {"GPUs": "one is here: there is nothing to compare"}
    one, all_gpus = (_logged_run(bench, count) for count in (1, gpus))
    return {
        "GPUs": gpus,
        "target tokens/s on one": one,
        "on all": all_gpus,
        "of linear": all_gpus / one / gpus,
    }


def _logged_run(bench: Bench, gpus: int) -> float:
    folder, updates = new_folder(bench), bench.of(UPDATES)
    _train(
        bench,
        folder,
        *settings(bench, trainer="ddp"),
        *(f"trainer.accelerator={'gpu' if bench.on_gpu else 'cpu'}", f"trainer.devices={gpus}"),
        *(f"trainer.max_steps={(TURNS + 1) * updates}", f"trainer.log_every_n_steps={updates}"),
    )
    return logged_speed(folder / "metrics.csv")


def _train(bench: Bench, folder: Path, *overrides: str) -> None:
    """Train in a new process, which has the time that is left; a resumed run has its own folder."""
    call = [sys.executable, "-m", "transformer", "train", *overrides]
    if not any(one.startswith("checkpoint=") for one in overrides):
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
