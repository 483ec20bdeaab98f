"""Trainings that a benchmark needs: each is made once, and resumed if it was stopped.

A training is a run of train.py, or the stages of a recipe. Its calls are recorded: the code and the
machine of each, and how long it took.
"""

import csv
import json
import math
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.support.records import UNKNOWN, Records, code_version, machine
from transformer.checkpoint.run_directory import is_finished
from transformer.cli.config import compose_config, run_settings
from transformer.recipes.runner import stop_with_parent
from transformer.runs.report import require_config
from transformer.runs.resume import changes
from transformer.settings.metrics import MetricsConfig

ROOT = Path(__file__).resolve().parents[2]
NOTED_EVERY = 30.0
"""Seconds; a call that is killed has lost no more of its time than these."""


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        begun: When.
        commit: Of the checkout; "+" at its end stands for changes in no commit.
        machine: It ran on.
        seconds: It took.
    """

    begun: str
    commit: str
    machine: str
    seconds: float


class Calls:
    """The calls of a training.

    Args:
        file: Where they are noted.
    """

    def __init__(self, file: Path) -> None:
        self._records = Records(file, Call, key=("begun",))

    @property
    def hours(self) -> float:
        """Of all."""
        return sum(call.seconds for call in self._records.read()) / 3600

    @property
    def commit(self) -> str:
        """Of the code; several, with spaces between, where it changed from call to call."""
        return " ".join(dict.fromkeys(call.commit for call in self._records.read()))

    @property
    def machine(self) -> str:
        """Likewise, with commas."""
        return ", ".join(dict.fromkeys(call.machine for call in self._records.read()))

    def run(
        self, arguments: Sequence[str], log: Path, threads: int, until: float = math.inf
    ) -> int:
        """Call Python with these arguments; what it says goes into the log. Gives its exit code.

        It outlives neither a signal nor, on Linux, this process. It gets SIGTERM at the time
        ``until`` of ``time.monotonic``.
        """
        commit = code_version()["commit"] or UNKNOWN
        call = Call(datetime.now(UTC).isoformat(), commit, machine(threads), 0.0)
        began = time.monotonic()
        with (
            open(log, "a") as said,
            subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                stdout=said,
                stderr=said,
                env=os.environ | {"OMP_NUM_THREADS": str(threads)},
                preexec_fn=stop_with_parent(),
            ) as process,
        ):
            code = None
            while code is None:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(min(NOTED_EVERY, max(0.1, until - time.monotonic())))
                if code is None and time.monotonic() >= until:
                    until = math.inf
                    process.terminate()
                self._records.keep(replace(call, seconds=round(time.monotonic() - began, 1)))
            return code


@dataclass(frozen=True)
class Training(ABC):
    """What was asked for, and where it is.

    Attributes:
        overrides: ``KEY=VALUE``, but for the folder.
        folder: Where it writes; its log and its calls are beside, under the same name.
    """

    overrides: tuple[str, ...]
    folder: Path

    @abstractmethod
    def check(self) -> None:
        """Refuse a folder that holds something else.

        Raises:
            SystemExit: It does.
        """

    def train(self, threads: int, until: float = math.inf) -> None:
        """Train until it is finished, or is stopped at this time of ``time.monotonic``.

        Raises:
            SystemExit: It cannot be trained, what it said is in the file ``FOLDER.log``.
        """
        if time.monotonic() >= until:
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        if not self.folder.exists():
            # Those of a run that was moved away.
            self._calls_file.unlink(missing_ok=True)
            self._log.unlink(missing_ok=True)
        code = self.calls.run(self.call, self._log, threads, until)
        if code and time.monotonic() < until:
            raise SystemExit(f"{' '.join(self.call)}: exit code {code}, see {self._log}")

    @property
    @abstractmethod
    def call(self) -> list[str]:
        """What makes it, or goes on with it."""

    @property
    @abstractmethod
    def run(self) -> Path:
        """The run directory of what was trained last."""

    @property
    def calls(self) -> Calls:
        """Those that have made it."""
        return Calls(self._calls_file)

    @property
    def hours(self) -> float:
        """That training, validation and tests have taken, restarts included."""
        return self.calls.hours

    @property
    def commit(self) -> str:
        """Of the code that trained it."""
        return self.calls.commit

    # Both beside the folder, which train.py takes away where it refuses a call.

    @property
    def _calls_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.calls.jsonl")

    @property
    def _log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")


Run = TypeVar("Run", bound=Training)


@dataclass(frozen=True)
class Chained(Training):
    """The stages of a recipe; ``last`` is that of the training whose model is wanted."""

    last: str

    def check(self) -> None:
        """Leaves that to the recipe, which knows what its stages were made of."""

    @property
    def call(self) -> list[str]:
        """Passes over stages that are done."""
        return ["-m", "transformer", *self.overrides, f"output={self.folder}"]

    @property
    def run(self) -> Path:
        """Of its last training."""
        return self.folder / self.last


@dataclass(frozen=True)
class Trained(Training):
    """One run of train.py."""

    def train(self, threads: int, until: float = math.inf) -> None:
        """Train, unless it is finished; see ``Training``.

        Raises:
            SystemExit: It cannot be trained, or nobody knows in which calls it was.
        """
        if not is_finished(self.folder):
            super().train(threads, until)
        elif not self._calls_file.exists():
            raise SystemExit(
                f"{self._calls_file} is not there, which says how long {self.folder} took on which "
                "machine; put it back, or move that folder away to train again"
            )

    @property
    def call(self) -> list[str]:
        """Goes on where it was stopped."""
        where = (f"hydra.run.dir={self.folder}", "checkpoint=auto")
        return ["train.py", *self.overrides, *where]

    @property
    def run(self) -> Path:
        """The folder itself."""
        return self.folder

    def check(self) -> None:
        """Refuse a folder with a run of other settings.

        Raises:
            SystemExit: It has one.
        """
        if not (self.folder / "config.yaml").exists():
            return
        wanted = run_settings(compose_config("train", self.overrides))
        if changed := changes(require_config(self.folder), wanted):
            raise SystemExit(
                f"{self.folder} holds a run with another {changed[0].partition(':')[0]} than is "
                "asked for now; move it away to train again"
            )

    @property
    def metrics(self) -> MetricsConfig:
        """How its text is compared."""
        return require_config(self.folder).metrics

    @property
    def validated(self) -> list[tuple[int, float]]:
        """Each validation: after how many updates, and the score that chooses."""
        choose = self.metrics.choose
        return [(updates, values[choose]) for updates, values in self.validations]

    @property
    def validations(self) -> list[tuple[int, dict[str, float]]]:
        """Each validation: after how many updates, and its loss and scores by name."""
        with open(self.folder / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        return [
            (
                int(row["step"]) + 1,
                {
                    column.removeprefix("val/"): float(value)
                    for column, value in row.items()
                    if column.startswith("val/") and value
                },
            )
            for row in rows
            if row.get("val/loss")
        ]

    def scores(self, split: str) -> list[dict[str, Any]]:
        """The scores of a test split: name, score, signature and more."""
        scores_of_split: list[dict[str, Any]] = json.loads(
            (self.folder / f"{split}.json").read_text()
        )
        return scores_of_split


def train_all(
    runs: Sequence[Run], *, processes: int, threads: int, until: float = math.inf
) -> Iterator[Run]:
    """Train what is missing, several at a time, and give each when it is done.

    At the time ``until`` of ``time.monotonic`` they are stopped.

    Raises:
        SystemExit: One is refused, before any is trained; or some cannot be trained, and the
            others are first.
    """
    for run in runs:
        run.check()
    failed = []
    with ThreadPoolExecutor(processes) as pool:
        trained = {pool.submit(run.train, threads, until): run for run in runs}
        try:
            for future in as_completed(trained):
                run = trained[future]
                if isinstance(error := future.exception(), SystemExit):
                    failed.append(str(error))
                    continue
                future.result()
                if until < math.inf and not is_finished(run.folder):
                    print(f"{run.folder.name}: no time is left", file=sys.stderr, flush=True)
                    continue
                print(f"{run.folder.name}: done", file=sys.stderr, flush=True)
                yield run
        finally:
            pool.shutdown(cancel_futures=True)
    if failed:
        raise SystemExit("\n".join(failed))
