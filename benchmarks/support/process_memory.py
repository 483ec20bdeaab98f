"""Time and memory of a command, over all its processes; reads Linux' /proc.

It does not know what the command does.
"""

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_FIELDS = ("Rss", "Pss", "Pss_Anon")


@dataclass(frozen=True)
class Memory:
    """Of a process and all that it has started, in MiB."""

    rss: float = 0.0
    """Sum of the resident pages; what processes share is counted for each."""
    pss: float = 0.0
    """The same with shared pages counted once."""
    private: float = 0.0
    """The same without the pages of files, which the kernel takes back when it needs room."""


def memory_of(process: int) -> Memory:
    """Measure a process and all below it; those that end meanwhile count nothing."""
    total = dict.fromkeys(_FIELDS, 0)
    for number in _family(process):
        try:
            rollup = Path(f"/proc/{number}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in rollup.splitlines()[1:]:
            name, size = line.split(":")
            if name in total:
                total[name] += int(size.split()[0])
    return Memory(*(total[name] / 1024 for name in _FIELDS))


def cpu_seconds_of(process: int) -> float:
    """What a process, all below it, and those of them that have ended have computed so far."""
    ticks = 0
    for number in _family(process):
        try:
            # The name, in brackets, may hold spaces.
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _family(process: int) -> list[int]:
    found = [process]
    for number in found:
        try:
            threads = list(Path(f"/proc/{number}/task").iterdir())
            found += [int(c) for t in threads for c in (t / "children").read_text().split()]
        except OSError:
            continue
    return found


@dataclass(frozen=True)
class Line:
    """A line that a command printed, and what it had taken until then."""

    text: str
    seconds: float
    cpu_seconds: float
    memory: Memory


@dataclass
class Measurement:
    """What a command took."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Over all processes; what the seconds would be on one core that nobody else uses."""
    peak: Memory = Memory()
    """The largest of each figure, not necessarily at one moment."""
    lines: list["Line"] = field(default_factory=list)
    """Each line that it printed."""

    def note(self, memory: Memory) -> None:
        """Keep the largest figures."""
        self.peak = Memory(
            max(memory.rss, self.peak.rss),
            max(memory.pss, self.peak.pss),
            max(memory.private, self.peak.private),
        )


def measure(command: Sequence[str], folder: Path, interval: float = 0.5) -> Measurement:
    """Run a command and look at its memory every so many seconds, and at every line it prints.

    Raises:
        SystemExit: It fails; with what it printed.
    """
    begin = time.monotonic()
    found = Measurement()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(interval):
            found.note(memory_of(process.pid))
            found.cpu_seconds = max(found.cpu_seconds, cpu_seconds_of(process.pid))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    assert process.stdout is not None
    for line in process.stdout:
        seconds = time.monotonic() - begin
        memory = memory_of(process.pid)
        found.note(memory)
        cpu = cpu_seconds_of(process.pid)
        found.lines.append(Line(line.rstrip("\n"), seconds, cpu, memory))
    code = process.wait()
    ended.set()
    watcher.join()
    found.seconds = time.monotonic() - begin
    if code:
        printed = "\n".join(line.text for line in found.lines)
        raise SystemExit(f"{' '.join(command)} ended with {code}:\n{printed}")
    return found
