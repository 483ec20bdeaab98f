"""The time of each kind of operation of an update, with and without the optimizations.

    python benchmarks/training/profiling.py --data-root FOLDER [--threads 2] [--updates 5]
        [--write PAGE]

Each size trains three times on English-German Multi30k, batches and sizes as in speed.py, each time
in a process of its own: *plain* in float32, with all logits at once, torch's dropout, the formula
of attention, and memory given back; *float32* with our loss, dropout,
attention and memory; *now* as
``precision=bf16-mixed loss.bfloat16=true`` trains. torch's profiler counts the time of every
operation on its own. Watching costs time: the milliseconds are more than those of training, most of
all where operations are small.

The last rows say what the matrix products are: their operations, as torch counts them (a
multiplication and an addition are two), and how many a second they make; the table after it, how
many a second such products make on their own. The last line of stdout is JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from benchmarks.support.records import markdown, write_between
from benchmarks.support.training_process import FAST, ROOT
from benchmarks.support.training_subjects import composed
from benchmarks.training.speed import BUDGETS, common
from transformer.model.layers import dropout
from transformer.runs.train import fit
from transformer.training.cpu_allocator import keep_freed_memory

SETTINGS = {
    "plain": (
        "precision=32-true",
        "loss.bfloat16=false",
        "loss.chunk=0",
        "keep_memory=false",
        "model.attention=eager",
    ),
    "float32": ("precision=32-true", "loss.bfloat16=false"),
    "now": FAST,
}
PRODUCTS = "matrix products"
OTHER = "other operations"
OUTSIDE = "outside operations"
KINDS = {
    PRODUCTS: ("mm", "addmm", "bmm", "baddbmm", "mkldnn", "linear"),
    "softmax, masks, cross-entropy": (
        "softmax",
        "log_softmax",
        "nll_loss",
        "masked_fill",
        "amax",
        "exp",
        "sub_",
        "LogSoftmax",
        "NllLoss",
        "FusedLoss",
    ),
    "random numbers, dropout": ("bernoulli", "random_", "dropout", "ge"),
    "layer norm": ("native_layer_norm", "layer_norm"),
    "Adam, clipping": ("fused_adam", "foreach", "linalg_vector_norm", "Optimizer"),
    "copies, casts, zeros": ("copy_", "to_copy", "fill_", "zero_", "cat", "clone", "index_select"),
    "sums, scaling, relu": ("add", "mul", "div", "sum", "threshold_backward", "clamp_min"),
}
"""Operations of torch by the beginning of their names; of ``_EXACT``, by the whole of it."""
_EXACT = ("exp", "ge")
TURNS = 12
FIRST = 3
WARM_UP = 20
"""Updates in which a process that keeps its memory still asks for more."""
SHAPES = {
    "tiny": ((4096, 128, 128), (4096, 128, 256), (4096, 128, 8000)),
    "base": ((2048, 512, 512), (2048, 512, 2048), (2048, 512, 8000)),
}
"""Rows, width in and width out of the products that training consists of."""


def char_kind(name: str) -> str:
    """The row of the table that an operation belongs to."""
    short = name.removeprefix("autograd::engine::evaluate_function: ")
    short = short.removeprefix("aten::").lstrip("_")
    for kind, beginnings in KINDS.items():
        if any(short == one or (one not in _EXACT and short.startswith(one)) for one in beginnings):
            return kind
    return OTHER


@dataclass
class Profiled(Callback):
    """Watches some updates of a run, tells what they were, and ends the process."""

    first: int
    updates: int
    answers: Any
    tokens: int = 0

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin to watch."""
        if trainer.global_step == self.first:
            self.watch = profile(activities=[ProfilerActivity.CPU], with_flops=True)
            self.watch.start()
            self.began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Tell."""
        if trainer.global_step <= self.first:
            return
        self.tokens += outputs["outcome"].numbers.tokens
        if trainer.global_step < self.first + self.updates:
            return
        seconds = time.perf_counter() - self.began
        self.watch.stop()
        found = dict.fromkeys([*KINDS, OTHER], 0.0)
        operations = 0
        for event in self.watch.key_averages():
            kind = char_kind(event.key)
            found[kind] += event.self_cpu_time_total / 1e3 / self.updates
            operations += event.flops / self.updates if kind == PRODUCTS else 0
        found[OUTSIDE] = max(0.0, seconds * 1e3 / self.updates - sum(found.values()))
        told = {"milliseconds": found, "operations": operations}
        told |= {"tokens_per_second": self.tokens / seconds}
        print(json.dumps(told), file=self.answers, flush=True)
        # Lightning would test and save what nobody wants.
        os._exit(0)


def train(size: str, setting: str, folder: Path, data: Path, updates: int) -> None:
    """A run that is watched; does not return."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if setting == "plain":
        dropout.Dropout.forward = _torch_dropout  # type: ignore
    config = composed(folder, [*common(data, size), *SETTINGS[setting]])
    fit(config, folder / setting, [Profiled(WARM_UP, updates, answers)])


def _torch_dropout(module: dropout.Dropout, hidden: torch.Tensor) -> torch.Tensor:
    return F.dropout(hidden, module.probability, module.training)


def watched(size: str, setting: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the process of a setting tells."""
    call = [sys.executable, "-m", "benchmarks.training.profiling", "--train", size, setting]
    call += ["--data-root", str(arguments.data_root), "--folder", str(arguments.folder)]
    call += ["--updates", str(arguments.updates)]
    found = subprocess.run(
        call,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": str(arguments.threads)},
    )
    told: dict[str, Any] = json.loads(found.stdout)
    return told


def rates(size: str) -> list[list[str]]:
    """Products on their own: shapes, and operations a second in both precisions, in GFLOP/s."""
    rows = []
    for height, width, out in SHAPES[size]:
        row = [f"{height:,} rows, {width} to {out:,}"]
        for dtype in (torch.float32, torch.bfloat16):
            left = torch.randn(height, width, dtype=dtype)
            right = torch.randn(out, width, dtype=dtype)
            taken = []
            for _ in range(TURNS):
                began = time.perf_counter()
                F.linear(left, right)
                taken.append(time.perf_counter() - began)
            # The first ones ask for the memory.
            taken = taken[FIRST:]
            row.append(f"{2 * height * width * out / statistics.median(taken) / 1e9:.0f}")
        rows.append(row)
    return rows


def table(size: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """Milliseconds and shares of an update by kinds, and what its products are, as Markdown."""
    rows = []
    for kind in [*KINDS, OTHER, OUTSIDE]:
        row = [kind]
        for told in found.values():
            spent = told["milliseconds"]
            row += [f"{spent[kind]:.0f}", f"{spent[kind] / sum(spent.values()):.0%}"]
        rows.append(row)
    sums = ["together"]
    speeds = ["target tokens/s, watched"]
    counts = []
    products = []
    for told in found.values():
        spent = told["milliseconds"]
        sums += [f"{sum(spent.values()):.0f}", ""]
        speeds += [f"{told['tokens_per_second']:,.0f}", ""]
        counts += [f"{told['operations'] / 1e9:.0f}", ""]
        products += [f"{told['operations'] / spent[PRODUCTS] / 1e6:.0f}", ""]
    rows += [sums, speeds, ["GFLOP of products", *counts], ["GFLOP/s of products", *products]]
    columns = [size, *(name for setting in found for name in (f"{setting}, ms", "share"))]
    return markdown(columns, rows)


def parse() -> argparse.Namespace:
    """The call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--sizes", nargs="+", choices=BUDGETS, default=list(BUDGETS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--updates", type=int, default=5, help="that are watched: 5")
    parser.add_argument("--folder", type=Path, default=Path("runs/benchmark_profile"))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables there")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name in ("data_root", "folder"):
        setattr(arguments, name, getattr(arguments, name).resolve())
    return arguments


def main() -> None:
    """Watch all, or train as one of those that are watched."""
    arguments = parse()
    if arguments.train:
        folder = arguments.folder / arguments.train[0]
        folder.mkdir(parents=True, exist_ok=True)
        size, setting = arguments.train
        train(size, setting, folder, arguments.data_root, arguments.updates)
        return
    torch.set_num_threads(arguments.threads)
    # As in training: a result that is given back to the kernel costs more than its product.
    keep_freed_memory()
    lines = []
    values = {}
    for size in arguments.sizes:
        values[size] = {setting: watched(size, setting, arguments) for setting in SETTINGS}
        alone = markdown(["products alone, GFLOP/s", "float32", "bfloat16"], rates(size))
        found = [*table(size, values[size]), "", *alone, ""]
        print("\n".join(found), flush=True)
        lines += found
    print(json.dumps(values), flush=True)
    if arguments.write:
        write_between(arguments.write, "profile", lines)


if __name__ == "__main__":
    main()
