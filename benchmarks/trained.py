"""A run of train.py that a benchmark wants to be there: trained once, and gone on with if stopped.

It does not know what the run is for.
"""

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from transformer.model.checkpoint import load_checkpoint
from transformer.training.run_folder import is_finished

ROOT = Path(__file__).resolve().parents[1]
SECONDS = "seconds"
"""Name of the file with a line for each process that has trained: how long it took."""


@dataclass(frozen=True)
class Trained:
    """What was asked for, and where it is.

    Attributes:
        overrides: As train.py takes them, but for the run directory.
        folder: The run directory.
    """

    overrides: tuple[str, ...]
    folder: Path

    @property
    def command(self) -> str:
        """How anyone gets the same run."""
        return " ".join(["python train.py", *self.overrides])

    def train(self, threads: int) -> None:
        """Train until it is finished.

        Raises:
            SystemExit: It cannot be trained; what it said is in the file ``FOLDER.log``.
        """
        if is_finished(self.folder):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder.with_name(f"{self.folder.name}.log")
        where = [f"hydra.run.dir={self.folder}", "checkpoint=auto"]
        began = time.monotonic()
        try:
            with open(log, "a") as said:
                code = subprocess.run(
                    [sys.executable, "train.py", *self.overrides, *where],
                    cwd=ROOT,
                    stdout=said,
                    stderr=said,
                    env=os.environ | {"OMP_NUM_THREADS": str(threads)},
                ).returncode
        finally:
            with open(self.folder / SECONDS, "a") as file:
                print(round(time.monotonic() - began), file=file)
        if code:
            raise SystemExit(f"{self.command}: exit code {code}, see {log}")

    @property
    def hours(self) -> float:
        """That training, validation and tests have taken, restarts included."""
        return sum(map(int, (self.folder / SECONDS).read_text().split())) / 3600

    @property
    def parameters(self) -> int:
        """Of the model."""
        model = load_checkpoint(self.folder).model
        return sum(parameter.numel() for parameter in model.parameters())

    @property
    def validated(self) -> list[tuple[int, float]]:
        """Each validation: after how many updates, and BLEU."""
        with open(self.folder / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        return [(int(row["step"]) + 1, float(row["val/bleu"])) for row in rows if row["val/bleu"]]

    def score(self, split: str, name: str) -> tuple[float, str]:
        """A score of a test split, and its signature."""
        scores = json.loads((self.folder / f"{split}.json").read_text())
        [found] = [one for one in scores if one["name"] == name]
        return found["score"], found["signature"]


def train_all(runs: Sequence[Trained], *, processes: int, threads: int) -> None:
    """Train what is missing, several at a time."""
    with ThreadPoolExecutor(processes) as pool:
        for run, _ in zip(runs, pool.map(lambda one: one.train(threads), runs), strict=True):
            print(f"{run.folder.name}: done", file=sys.stderr, flush=True)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table."""
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
