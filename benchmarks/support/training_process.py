"""A training process of benchmarks/training/speed.py, and its results.

It does not know how a framework trains; training_subjects.py, at the other end of the pipe, does.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMES = {
    "ours": "ours",
    "hf": "Hugging Face",
    "hf_eager": "Hugging Face, eager",
    "torch": "torch.nn.Transformer",
}
MOST = 400
"""Updates that the others have batches in memory for; then they begin again."""
KEPT = {True: "kept", False: "returned"}
FAST = ("precision=bf16-mixed", "loss.bfloat16=true")


@dataclass
class Subject:
    """One that trains, in a process of its own.

    Attributes:
        framework: A key of ``NAMES``.
        precision: ``float32`` or ``bfloat16``.
        kept: Whether freed memory is kept.
        speeds: Target tokens a second, of each turn.
        shares: Time of the matrix products alone, as a share of the time of each turn; ours only.
        loss: Mean of the last updates, in nats.
        peak: MiB, when it was timed last.
        done: Updates so far.
    """

    framework: str
    precision: str
    kept: bool
    speeds: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    loss: float | None = None
    peak: float = 0.0
    done: int = 0

    @property
    def key(self) -> str:
        """As the last line has it."""
        kept = "" if self.kept == (self.framework == "ours") else f"_{KEPT[self.kept]}"
        return f"{self.framework}_{self.precision}{kept}"

    @property
    def speed(self) -> float:
        """Target tokens a second, of the median turn."""
        return statistics.median(self.speeds)

    @property
    def spread(self) -> float:
        """Half of the distance from the slowest turn to the fastest, as a share of the median."""
        return (max(self.speeds) - min(self.speeds)) / 2 / self.speed

    @property
    def share(self) -> float | None:
        """The share of the median turn."""
        return statistics.median(self.shares) if self.shares else None

    @property
    def overrides(self) -> list[str]:
        """What makes the run this one."""
        fast = FAST if self.precision == "bfloat16" else ("precision=32-true",)
        return [*fast, f"keep_memory={str(self.kept).lower()}"]

    def start(self, folder: Path, common: Sequence[str], threads: int) -> None:
        """Begin; `ready` waits until it can make updates."""
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.support.training_subjects",
                str(folder),
                self.framework,
                *common,
                *self.overrides,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )

    def ready(self) -> None:
        """Wait until it can make updates."""
        self._answer()

    def update(self, count: int) -> dict[str, Any]:
        """Make so many updates."""
        answer: dict[str, Any] = self._ask(count)
        self.done += count
        return answer

    def products(self) -> float:
        """Seconds of the matrix products of the last updates alone."""
        return float(self._ask("products"))

    def end(self) -> None:
        """Leave the machine to the others."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _ask(self, question: int | str) -> Any:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            print(question, file=self.process.stdin, flush=True)
        return json.loads(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            why = "; all are in memory at once: --sizes tiny needs less" if code == -SIGKILL else ""
            raise SystemExit(f"{self.key} has ended with {code}{why}")
        return line
