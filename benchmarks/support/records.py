"""Results as lines of JSON, and the tables that pages make of them.

A table of many trainings takes days. The file lets it grow run by run, and records for each number
the code and the machine.
"""

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

from filelock import FileLock

from transformer.common.files import written_whole

Record = TypeVar("Record")

UNKNOWN = "unknown"
"""The commit of code that is no checkout."""

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
        self.path = path
        self.kind = kind
        self.key = key

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
        others = [kept for kept in self.read() if self._name(kept) != self._name(record)]
        records = sorted([*others, record], key=self._name)
        text = "".join(f"{json.dumps(vars(kept))}\n" for kept in records)
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
    return " ".join(f"{part[:7]}{part[40:]}" for part in commit.split())


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


def publish(
    page: Path,
    name: str,
    records: Records[Record],
    new_records: Iterable[Record],
    table: Callable[[list[Record]], list[str]],
) -> list[str]:
    """Record what was found, and write the table of all that is recorded, which is returned.

    One process at a time does so for a page.
    """
    with FileLock(page.with_name(f".{page.name}.lock")):
        for record in new_records:
            records.keep(record)
        lines = table(records.read())
        write_between(page, name, lines)
    return lines


def write_between(page: Path, name: str, lines: Sequence[str]) -> None:
    """Put the lines between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.

    Raises:
        SystemExit: The page does not hold each of them once.
    """
    begin = f"<!-- {name}: begin -->"
    end = f"<!-- {name}: end -->"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"{page} must hold {begin} and {end}, each once")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    table = "\n".join(lines)
    with written_whole(page) as part:
        part.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table."""
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]


_LIBRARIES = ("torch", "pytorch-lightning", "sentencepiece", "sacrebleu")
_CODE = ("transformer", "conf", "data/pocket", "train.py")


def code_version(*besides: str) -> dict[str, str | None]:
    """By name; a commit ends in "+" where the code of the checkout has changes that are in none.

    Args:
        besides: What is code, too, for whoever asks: files and folders of the checkout.
    """
    versions: dict[str, str | None] = {
        name: _installed(name) for name in ("transformer", *_LIBRARIES)
    }
    return {"commit": _commit((*_CODE, *besides)), "python": platform.python_version(), **versions}


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit(code: Sequence[str]) -> str | None:
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", *code)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}{'+' if changed else ''}"


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()
