"""Translates a text in one process, and by ``launch=ray`` on a local Ray that loses an actor.

    python -m benchmarks.decoding.ray_data --run RUN --input FILE --lines 100000 [KEY=VALUE…]

The last line of stdout is JSON: lines of both, lines that differ, seconds, sentences a second, and
the largest memory of the process that the user has called, in MiB. Linux only.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from transformer.data.text.lines import read_lines

_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


def timed(
    arguments: Sequence[str], lines: int, watch: Callable[[int], None] = lambda pid: None
) -> dict[str, Any]:
    """Run a command; ``watch`` is called with its process id until it ends."""
    start = time.monotonic()
    peak = 0
    process = subprocess.Popen([sys.executable, "-m", "transformer", "translate", *arguments])
    while process.poll() is None:
        time.sleep(0.2)
        watch(process.pid)
        try:
            found = _PEAK.search(Path(f"/proc/{process.pid}/status").read_text())
        except OSError:
            continue
        peak = int(found[1]) if found else peak
    seconds = time.monotonic() - start
    assert process.returncode == 0
    rate = round(lines / seconds, 1)
    return {"seconds": round(seconds, 1), "sentences_per_second": rate, "peak_mib": peak >> 10}


def actors(driver: int) -> list[int]:
    """Process ids of the actors of a driver: children of its raylet."""
    parents = {}
    titles = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2]
            titles[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(stat.split()[1])
    mine = (one for one in titles if parents.get(parents.get(one, 0)) == driver)
    return sorted(one for one in mine if titles[one].startswith(b"ray::MapWorker"))


def main() -> None:
    """Measure, and print the values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("keys", nargs="*")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r") as name:
        # Ray's workers are otherwise nicer than other programs, which then have their cores.
        os.environ |= {"RAY_TMPDIR": name, "RAY_worker_niceness": "0"}
        folder = Path(name)
        text, one, two = (folder / name for name in ("text", "one", "two"))
        read = list(islice(read_lines(arguments.input), arguments.lines))
        text.write_bytes("".join(f"{line}\n" for line in read).encode())
        call = [f"checkpoint={arguments.run}", f"input={text}", *arguments.keys]
        alone = timed([*call, f"output={one}"], len(read))
        killed: list[int] = []

        def kill(driver: int) -> None:
            found = actors(driver)
            if not killed and len(found) == 2 and len(list(two.glob("text.*"))) >= 2:
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])

        by_ray = timed([*call, "launch=ray", f"output={two}"], len(read), kill)
        blocks = sorted(two.glob("text.*"))
        rows = [json.loads(line) for block in blocks for line in block.open(newline="\n")]
        sources, targets = zip(*(row.values() for row in rows), strict=True)
        lines = one.read_bytes().decode().split("\n")[:-1]
        differing = sum(a != b for a, b in zip(lines, targets, strict=True))
        values = {
            "lines": [len(lines), len(rows)],
            "same_sources": list(sources) == read,
            "differing": differing,
            "killed": len(killed),
            "blocks": len(blocks),
            "one_process": alone,
            "ray": by_ray,
            "load_average": os.getloadavg(),
        }
    print(json.dumps(values))


if __name__ == "__main__":
    main()
