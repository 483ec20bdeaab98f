"""What was measured, one line of JSON each, in a file that outlives the trainings.

A table of many trainings takes days; the file lets it grow run by run, and says of each number
which code and which machine it is of.
"""

import json
import os
import platform
from pathlib import Path
from typing import Any, Generic, TypeVar

Record = TypeVar("Record")

INSTRUCTIONS = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX512-BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}
"""Flags of /proc/cpuinfo that decide how fast products of matrices are, the fastest first."""


class Records(Generic[Record]):
    """The records of a file.

    Args:
        path: Where they are, or will be.
        kind: A dataclass of plain values.
        key: Its fields of which no two records have the same values.
    """

    def __init__(self, path: Path, kind: type[Record], key: tuple[str, ...]) -> None:
        self.path, self.kind, self.key = path, kind, key

    def read(self) -> list[Record]:
        """All of them; none if there is no file.

        Raises:
            SystemExit: A line is no such record.
        """
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [self._record(line, number) for number, line in enumerate(lines, 1)]

    def keep(self, record: Record) -> None:
        """Add one, in place of that of the same key; nobody else may write at that time."""
        others = [one for one in self.read() if self._name(one) != self._name(record)]
        records = sorted([*others, record], key=self._name)
        text = "".join(f"{json.dumps(vars(one))}\n" for one in records)
        partial = self.path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.path)

    def _name(self, record: Record) -> list[Any]:
        return [getattr(record, field) for field in self.key]

    def _record(self, line: str, number: int) -> Record:
        try:
            return self.kind(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise SystemExit(
                f"{self.path}, line {number}: {error}; mend it or take it out"
            ) from None


def short(commit: str) -> str:
    """Of commits as much as one calls them by; a "+" after one stays."""
    return " ".join(f"{one[:7]}{one[40:]}" for one in commit.split())


def machine(threads: int) -> str:
    """What a process of so many threads runs on here, without a GPU."""
    return f"{_processor()}, {threads} of {os.cpu_count()} cores"


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    fields = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}
    name = fields.get("model name") or platform.machine()
    flags = fields.get("flags", "").split()
    instructions = next((INSTRUCTIONS[flag] for flag in INSTRUCTIONS if flag in flags), None)
    return f"{name} with {instructions}" if instructions else name
