"""Trainings that a benchmark wants to be there: made once, and gone on with if stopped.

A run of train.py, or the stages of a recipe. It does not know what they are for.
"""

import csv
import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf

from transformer.cli.compose import compose_config
from transformer.recipes.manifest import MANIFEST
from transformer.recipes.version import code_version
from transformer.training.run_folder import is_finished

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Training(ABC):
    """What was asked for, and where it is.

    Attributes:
        overrides: ``KEY=VALUE``, but for the folder.
        folder: Where it writes; its log, its times and the commit are beside, under the same name.
    """

    overrides: tuple[str, ...]
    folder: Path

    def train(self, threads: int) -> None:
        """Train until it is finished.

        Raises:
            SystemExit: It cannot be trained, what it said is in the file ``FOLDER.log``.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        self._beside("commit").write_text(f"{code_version()['commit']}\n")
        try:
            with open(self._beside("log"), "a") as said:
                code = subprocess.run(
                    [sys.executable, *self.call],
                    cwd=ROOT,
                    stdout=said,
                    stderr=said,
                    env=os.environ | {"OMP_NUM_THREADS": str(threads)},
                ).returncode
        finally:
            with open(self._beside("seconds"), "a") as file:
                print(round(time.monotonic() - began), file=file)
        if code:
            raise SystemExit(f"{' '.join(self.call)}: exit code {code}, see {self._beside('log')}")

    @property
    @abstractmethod
    def call(self) -> list[str]:
        """What makes it, or goes on with it."""

    @property
    @abstractmethod
    def run(self) -> Path:
        """The run directory of what was trained last."""

    @property
    def hours(self) -> float:
        """That training, validation and tests have taken, restarts included."""
        return sum(map(int, self._beside("seconds").read_text().split())) / 3600

    @property
    def commit(self) -> str:
        """Of the checkout that trained it last; "+" at its end stands for changes in no commit."""
        return self._beside("commit").read_text().strip()

    def _beside(self, kind: str) -> Path:
        """A file that stays where train.py takes a folder away that it refuses."""
        return self.folder.with_name(f"{self.folder.name}.{kind}")


Run = TypeVar("Run", bound=Training)


@dataclass(frozen=True)
class Chained(Training):
    """The stages of a recipe; ``last`` is that of the training whose model is wanted."""

    last: str

    @property
    def call(self) -> list[str]:
        """Passes over stages that are done."""
        return ["-m", "transformer", *self.overrides, f"output={self.folder}"]

    @property
    def run(self) -> Path:
        """Of its last training."""
        return self.folder / self.last

    @property
    def hours(self) -> float:
        """Of all stages; not of models that it was given."""
        manifest = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
        return sum(float(stage["seconds"]) for stage in manifest["stages"]) / 3600


@dataclass(frozen=True)
class Trained(Training):
    """One run of train.py."""

    def train(self, threads: int) -> None:
        """Train, unless it is finished.

        Raises:
            SystemExit: It cannot be trained, or the folder holds a run of other settings.
        """
        if is_finished(self.folder):
            self._refuse_another()
        else:
            super().train(threads)

    @property
    def call(self) -> list[str]:
        """Goes on where it was stopped."""
        where = (f"hydra.run.dir={self.folder}", "checkpoint=auto")
        return ["train.py", *self.overrides, *where]

    @property
    def run(self) -> Path:
        """The folder itself."""
        return self.folder

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


def train_all(runs: Sequence[Run], *, processes: int, threads: int) -> Iterator[Run]:
    """Train what is missing, several at a time, and give each when it is done.

    Raises:
        SystemExit: One cannot be trained; those that have begun are trained first.
    """
    with ThreadPoolExecutor(processes) as pool:
        trained = {pool.submit(run.train, threads): run for run in runs}
        try:
            for future in as_completed(trained):
                future.result()
                run = trained[future]
                print(f"{run.folder.name}: done", file=sys.stderr, flush=True)
                yield run
        finally:
            pool.shutdown(cancel_futures=True)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table."""
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
