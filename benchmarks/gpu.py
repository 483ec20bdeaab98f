"""Measure what only a card can tell, and what training costs on paper.

    python benchmarks/gpu.py CASE [--folder runs/gpu]
    python benchmarks/gpu.py all [--folder runs/gpu] [--write docs/gpu.md]
    python benchmarks/gpu.py cost [--tflops N] [--price N] … [--write docs/gpu.md]

A case is *env*, *shapes*, *loss*, *attention*, *step*, *train*, *decode*, *syncs*, *oom*, *resume*
or *ddp*; each prints a line of JSON, again with each row it has measured. Times are the median of 3
turns of 20 updates after 20, by CUDA events. *all* runs every case in a process of its own and
within ten minutes, and prints its last line; where one fails, or time runs out, that line says why.
``--write`` puts the tables of *all*, or of *cost*, on the page. *cost* needs no card.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from benchmarks import gpu_decoding, gpu_kernels, gpu_runs, gpu_steps
from benchmarks.gpu_cost import Assumptions, cost_tables
from benchmarks.gpu_steps import Bench, Rows
from benchmarks.page import write_between
from benchmarks.trained import markdown
from transformer.recipes.runner import stop_with_parent

ROOT = Path(__file__).resolve().parents[1]
UNMEASURED = "not measured yet"


@dataclass(frozen=True)
class Case:
    """What is measured, and the seconds that it may take in *all*."""

    measure: Callable[[Bench], Rows]
    seconds: int


CASES = {
    "env": Case(gpu_kernels.env, 30),
    "shapes": Case(gpu_steps.shapes, 35),
    "loss": Case(gpu_kernels.loss, 30),
    "attention": Case(gpu_kernels.attention, 40),
    "step": Case(gpu_steps.step, 130),
    "train": Case(gpu_runs.train, 50),
    "decode": Case(gpu_decoding.decode, 45),
    "syncs": Case(gpu_runs.syncs, 40),
    "oom": Case(gpu_runs.oom, 50),
    "resume": Case(gpu_runs.resume, 90),
    "ddp": Case(gpu_runs.ddp, 60),
}


def result(name: str, bench: Bench) -> dict[str, Any]:
    """Print the line of a case after each row and at the end; returns the last.

    It has the rows, the seconds until then, and why there are no more rows if the case failed.
    """
    began = time.monotonic()
    line: dict[str, Any] = {"case": name, "rows": []}

    def show() -> None:
        line["seconds"] = round(time.monotonic() - began, 1)
        print(json.dumps(line), flush=True)

    try:
        for row in CASES[name].measure(bench):
            line["rows"].append(row)
            show()
    except Exception as error:  # whatever it is, the other cases go on
        traceback.print_exc()
        line["why"] = f"{type(error).__name__}: {' '.join(str(error).split())}"
    show()
    return line


def result_of_process(name: str, call: Sequence[str], seconds: float) -> dict[str, Any]:
    """The line that a call prints last; its processes are killed after so many seconds.

    The rows that it has measured until then stay.
    """
    process = subprocess.Popen(
        call,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=stop_with_parent(),
    )
    why = None
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        why = f"it takes more than {seconds:g} seconds"
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    line = last_line(output) or {"case": name}
    if why is None and "why" not in line and (process.returncode or not line.get("rows")):
        why = f"it has ended with {process.returncode}"
    return line if why is None else line | {"why": why}


def last_line(output: str) -> dict[str, Any] | None:
    """The last whole line of a case; others are of libraries, or cut off."""
    for text in reversed(output.splitlines()):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict) and "case" in line:
            return line
    return None


def tables(results: Sequence[dict[str, Any]]) -> list[str]:
    """A table of each case, in the order of ``CASES``, and why the others have none, or no more."""
    by_name = {line["case"]: line for line in results}
    lines, missing = [], []
    for name in CASES:
        line = by_name.get(name, {"why": UNMEASURED})
        if line.get("rows"):
            lines += [f"**{name}**", "", *table(line["rows"]), ""]
        if "why" in line:
            missing.append([name, shown(line["why"])])
    return [*lines, *(markdown(["case", "no (more) numbers"], missing) if missing else ())]


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Columns are the keys of all rows."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return markdown(columns, [[shown(row.get(column, "")) for column in columns] for row in rows])


def shown(value: Any) -> str:
    """A cell; fractions have three digits, or none behind the point."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


def parse() -> argparse.Namespace:
    """The call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cases = parser.add_subparsers(dest="case", required=True, metavar="CASE")
    for name in (*CASES, "all"):
        case = cases.add_parser(name)
        case.add_argument("--folder", type=Path, default=ROOT / "runs" / "gpu")
    pages = [case, cost := cases.add_parser("cost")]
    for one in pages:
        one.add_argument("--write", type=Path, metavar="PAGE", help="put the tables there")
    cost.add_argument("--tflops", type=positive, default=Assumptions.tflops)
    cost.add_argument("--price", type=positive, default=Assumptions.price)
    cost.add_argument("--nvlink", type=positive, default=Assumptions.nvlink)
    cost.add_argument("--adapter", type=positive, default=Assumptions.adapter)
    cost.add_argument("--adapters", type=positive, default=Assumptions.adapters)
    return parser.parse_args()


def positive(text: str) -> float:
    """A rate or a price."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} must be above 0")
    return value


def measured(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Print the line of each case that was asked for."""
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.case != "all":
        return [result(arguments.case, Bench(torch.device("cuda"), folder))]
    lines = []
    for name, case in CASES.items():
        call = [sys.executable, "-m", "benchmarks.gpu", name, "--folder", str(folder)]
        lines.append(result_of_process(name, call, case.seconds))
        print(json.dumps(lines[-1]), flush=True)
    return lines


def main() -> int:
    """Returns the exit code: 1 if a case failed, 2 without a card."""
    arguments = parse()
    if arguments.case == "cost":
        given = {option.name: getattr(arguments, option.name) for option in fields(Assumptions)}
        lines = cost_tables(Assumptions(**given))
        print("\n".join(lines))
        if arguments.write:
            write_between(arguments.write, "cost", lines)
        return 0
    if not torch.cuda.is_available():
        print(
            f"error: benchmarks/gpu.py {arguments.case} needs a CUDA card, and torch "
            f"{torch.__version__} finds none; only cost needs none",
            file=sys.stderr,
        )
        return 2
    results = measured(arguments)
    if arguments.case == "all" and arguments.write:
        write_between(arguments.write, "measured", tables(results))
    return int(any("why" in line for line in results))


if __name__ == "__main__":
    sys.exit(main())
