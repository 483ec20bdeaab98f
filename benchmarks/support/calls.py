"""The calls that one training has taken: on which code and machine each ran, and for how long.

It does not know what they train.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.support.records import Records, machine
from benchmarks.support.version import code_version
from transformer.recipes.runner import stop_with_parent

ROOT = Path(__file__).resolve().parents[2]
UNKNOWN = "unknown"
"""The commit of code that is no checkout."""
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
