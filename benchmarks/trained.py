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
from typing import Any

from omegaconf import OmegaConf

from transformer.cli.compose import compose_config
from transformer.training.run_folder import is_finished

ROOT = Path(__file__).resolve().parents[1]


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
            SystemExit: It cannot be trained, what it said is in the file ``FOLDER.log``; or the
                folder holds a run of other settings.
        """
        if is_finished(self.folder):
            self._refuse_another()
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        where = [f"hydra.run.dir={self.folder}", "checkpoint=auto"]
        began = time.monotonic()
        try:
            with open(self._beside("log"), "a") as said:
                code = subprocess.run(
                    [sys.executable, "train.py", *self.overrides, *where],
                    cwd=ROOT,
                    stdout=said,
                    stderr=said,
                    env=os.environ | {"OMP_NUM_THREADS": str(threads)},
                ).returncode
        finally:
            with open(self._beside("seconds"), "a") as file:
                print(round(time.monotonic() - began), file=file)
        if code:
            raise SystemExit(f"{self.command}: exit code {code}, see {self._beside('log')}")

    @property
    def hours(self) -> float:
        """That training, validation and tests have taken, restarts included."""
        return sum(map(int, self._beside("seconds").read_text().split())) / 3600

    def _beside(self, kind: str) -> Path:
        """A file that stays where train.py takes a folder away that it refuses."""
        return self.folder.with_name(f"{self.folder.name}.{kind}")

    def _refuse_another(self) -> None:
        wanted: Any = OmegaConf.to_container(compose_config("train", self.overrides), resolve=True)
        there: Any = OmegaConf.to_container(OmegaConf.load(self.folder / "config.yaml"))
        for key in wanted.keys() - {"checkpoint"}:
            if wanted[key] != there.get(key):
                raise SystemExit(
                    f"{self.folder} is finished, but with another {key} than is asked for now; "
                    "move it away to train again"
                )

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
