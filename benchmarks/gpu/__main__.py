"""Measure speed and memory on a GPU, and estimate what training costs.

    python -m benchmarks.gpu all [--folder runs/gpu] [--deadline 560] [--write PAGE]
    python -m benchmarks.gpu update decode        # the rows of some tables
    python -m benchmarks.gpu all --rehearse       # every row, small and on a CPU
    python -m benchmarks.gpu cost [--tflops N] [--price N] … [--write PAGE]

PAGE is benchmarks/gpu/README.md, which holds the tables of the last measurement.

One process measures all rows (rows.py), the most wanted first. Each row is a line of JSON, printed
and written to FOLDER/rows.jsonl as soon as it is measured; the line of a row that fails, or for
which no time is left, has the reason. FOLDER/compile_cache.bin keeps the output of torch.compile
for the next call. The exit code is 1 if a row has no numbers, 2 without a GPU; *cost* needs none.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.gpu.cost import Assumptions, cost_tables
from benchmarks.gpu.measure import Bench, Runner, prepare_tiny
from benchmarks.gpu.rows import ROWS, TABLES, tables
from benchmarks.support.records import write_between

ROOT = Path(__file__).resolve().parents[2]
WRITE_HELP = "a page; each table is put between its two comments"


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    began = time.monotonic()
    if arguments[:1] == ["cost"]:
        return cost(arguments[1:])
    options = parse(arguments)
    if not options.rehearse and not torch.cuda.is_available():
        print(
            f"error: benchmarks.gpu needs a CUDA GPU, and torch {torch.__version__} finds "
            "none; --rehearse and cost need none",
            file=sys.stderr,
        )
        return 2
    folder = options.folder or ROOT / "runs" / ("gpu_rehearsal" if options.rehearse else "gpu")
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ends = began + options.deadline
    if options.rehearse:
        bench = Bench.tiny(folder, ends)
        prepare_tiny()
    else:
        bench = Bench(torch.device("cuda"), folder, ends)
    rows = [row for row in ROWS if {"all", row.table} & set(options.tables)]
    runner = Runner(rows, bench)
    lines = runner.run()
    if options.write:
        write_between(options.write, "measured", tables(runner.file.read()))
    return int(any("why" in line for line in lines))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a measurement."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ("all", *TABLES)
    parser.add_argument(
        "tables",
        nargs="+",
        choices=names,
        metavar="TABLE",
        help=f"{', '.join(names)}; cost has its own options: cost --help",
    )
    parser.add_argument("--folder", type=Path, help="default: runs/gpu, or runs/gpu_rehearsal")
    parser.add_argument(
        "--deadline",
        type=positive,
        default=560.0,
        metavar="SECONDS",
        help="rows that have not begun by then are left out; default: 560",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--rehearse", action="store_true", help="small models, on a CPU")
    kind.add_argument("--write", type=Path, metavar="PAGE", help=WRITE_HELP)
    return parser.parse_args(arguments)


def cost(arguments: Sequence[str]) -> int:
    """Print the tables of the costs on paper; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu cost", description=Assumptions.__doc__
    )
    parser.add_argument("--tflops", type=positive, default=Assumptions.tflops)
    parser.add_argument("--price", type=positive, default=Assumptions.price)
    parser.add_argument("--nvlink", type=positive, default=Assumptions.nvlink)
    parser.add_argument("--adapter", type=positive, default=Assumptions.adapter)
    parser.add_argument("--adapters", type=positive, default=Assumptions.adapters)
    parser.add_argument("--write", type=Path, metavar="PAGE", help=WRITE_HELP)
    options = vars(parser.parse_args(arguments))
    page = options.pop("write")
    lines = cost_tables(Assumptions(**options))
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
