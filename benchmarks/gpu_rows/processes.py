"""Rows of benchmarks/gpu.py whose runs are processes of their own: a restart, and several cards.

It does not know how a row is started, or where its numbers go.
"""

import csv
import math
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.gpu_rows.bench import Bench, OutOfTime, Values
from benchmarks.gpu_rows.runs import TURNS, UPDATES, new_folder, settings, values
from transformer.runs.resume_check import check_resume

ROOT = Path(__file__).resolve().parents[2]


def resume(bench: Bench) -> Values:
    """Whether a run that is stopped and resumed equals one that was not, in other processes."""
    return {"found": check_resume(values(bench), new_folder(bench), bench.of(UPDATES) // 2)}


def ddp(bench: Bench) -> Values:
    """Target tokens a second on all cards beside one, each with the same batches a card.

    Runs are processes of their own; a rehearsal has two of a CPU.
    """
    cards = torch.cuda.device_count() if bench.on_card else 2
    if cards < 2:
        return {"cards": "one is here: there is nothing to compare"}
    one, all_cards = (_logged_run(bench, count) for count in (1, cards))
    return {
        "cards": cards,
        "target tokens/s on one": one,
        "on all": all_cards,
        "of linear": all_cards / one / cards,
    }


def _logged_run(bench: Bench, cards: int) -> float:
    folder, updates = new_folder(bench), bench.of(UPDATES)
    arguments = [
        *(sys.executable, "-m", "transformer", "train", *settings(bench, trainer="ddp")),
        *(f"trainer.accelerator={'gpu' if bench.on_card else 'cpu'}", f"trainer.devices={cards}"),
        *(f"trainer.max_steps={(TURNS + 1) * updates}", f"trainer.log_every_n_steps={updates}"),
        f"hydra.run.dir={folder}",
    ]
    left = None if math.isinf(bench.left) else bench.left
    try:
        subprocess.run(arguments, cwd=ROOT, check=True, stdout=sys.stderr, timeout=left)
    except subprocess.TimeoutExpired:
        raise OutOfTime from None
    return logged_speed(folder / "metrics.csv")


def logged_speed(file: Path) -> float:
    """Median of the speeds that a run has logged, but for the first."""
    with file.open(newline="") as lines:
        logged = [row["train/tokens_per_second"] for row in csv.DictReader(lines)]
    return statistics.median([float(speed) for speed in logged if speed][1:])
