"""Measure speed and memory on a GPU, and estimate what training costs.

    python benchmarks/gpu.py all [--folder runs/gpu] [--deadline 560] [--write docs/gpu.md]
    python benchmarks/gpu.py update decode        # the rows of some tables
    python benchmarks/gpu.py all --rehearse       # every row, small and on a CPU
    python benchmarks/gpu.py cost [--tflops N] [--price N] … [--write docs/gpu.md]

One process measures all rows, the most wanted first (gpu_rows/registry.py). Each is a line of JSON,
printed and on the disk in FOLDER/rows.jsonl as soon as it is measured; of a row that fails, or for
which no time is left, the line says why. FOLDER/compile_cache.bin keeps what torch.compile made for
the next call. The exit code is 1 if a row has no numbers, 2 without a GPU; *cost* needs none.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.gpu_rows.bench import Bench
from benchmarks.gpu_rows.cost import Assumptions, cost_tables
from benchmarks.gpu_rows.page import tables
from benchmarks.gpu_rows.registry import ROWS, TABLES
from benchmarks.gpu_rows.runner import Runner, prepare_tiny
from benchmarks.results.page import write_between

ROOT = Path(__file__).resolve().parents[1]
LATE_ROWS = "rows that have not begun by then are left out; default: 560"
WRITE_HELP = "a page; each table is put between its two comments"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ("all", *TABLES)
    listed = f"{', '.join(known)}; cost has options of its own: gpu.py cost --help"
    parser.add_argument("tables", nargs="+", choices=known, metavar="TABLE", help=listed)
    parser.add_argument("--folder", type=Path, help="default: runs/gpu, or runs/gpu_rehearsal")
    parser.add_argument(
        "--deadline", type=positive, default=560.0, metavar="SECONDS", help=LATE_ROWS
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--rehearse", action="store_true", help="small models, on a CPU")
    kind.add_argument("--write", type=Path, metavar="PAGE", help=WRITE_HELP)
    return parser.parse_args(arguments)


def cost(arguments: Sequence[str]) -> int:
    """Print the tables of the costs on paper; returns the exit code."""
    parser = argparse.ArgumentParser(prog="gpu.py cost", description=Assumptions.__doc__)
    parser.add_argument("--tflops", type=positive, default=Assumptions.tflops)
    parser.add_argument("--price", type=positive, default=Assumptions.price)
    parser.add_argument("--nvlink", type=positive, default=Assumptions.nvlink)
    parser.add_argument("--adapter", type=positive, default=Assumptions.adapter)
    parser.add_argument("--adapters", type=positive, default=Assumptions.adapters)
    parser.add_argument("--write", type=Path, metavar="PAGE", help=WRITE_HELP)
    given = vars(parser.parse_args(arguments))
    page = given.pop("write")
    lines = cost_tables(Assumptions(**given))
    print("\n".join(lines))
    if page:
        write_between(page, "cost", lines)
    return 0


def positive(text: str) -> float:
    """A rate, a price or a time."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} must be above 0")
    return value


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    began = time.monotonic()
    if arguments[:1] == ["cost"]:
        return cost(arguments[1:])
    given = parse(arguments)
    if not given.rehearse and not torch.cuda.is_available():
        print(
            f"error: benchmarks/gpu.py needs a CUDA GPU, and torch {torch.__version__} finds "
            "none; --rehearse and cost need none",
            file=sys.stderr,
        )
        return 2
    folder = given.folder or ROOT / "runs" / ("gpu_rehearsal" if given.rehearse else "gpu")
    folder, ends = folder.resolve(), began + given.deadline
    folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(torch.device("cuda"), folder, ends)
    if given.rehearse:
        bench = Bench.tiny(folder, ends)
        prepare_tiny()
    rows = [row for row in ROWS if {"all", row.table} & set(given.tables)]
    runner = Runner(rows, bench)
    lines = runner.run()
    if given.write:
        write_between(given.write, "measured", tables(runner.file.read()))
    return int(any("why" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
