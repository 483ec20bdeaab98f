"""The losses of one run in one, two and four processes, on two machines, and sharded.

    python benchmarks/training/processes.py [--steps 20] [--only NAME…] [--work runs/processes]

All have the same global batch of four micro-batches, and dropout; the machines are two calls of
torchrun on this one. Prints the loss at each update and the scores of each validation, the largest
difference from one process, and as its last line JSON. A run that is finished is not repeated.
"""

import argparse
import csv
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from transformer.checkpoint.run_directory import is_finished

ROOT = Path(__file__).resolve().parents[2]

DDP = ("trainer=ddp", "trainer.accelerator=cpu")
FSDP = ("trainer=fsdp", "trainer.accelerator=cpu")
RUNS: dict[str, tuple[int, Sequence[str]]] = {
    "1 process": (1, ("trainer.accumulate_grad_batches=4",)),
    "2 processes": (1, (*DDP, "trainer.devices=2", "trainer.accumulate_grad_batches=2")),
    "4 processes": (1, (*DDP, "trainer.devices=4")),
    "2 machines x 2": (2, DDP),
    "fsdp, 2": (1, (*FSDP, "trainer.devices=2", "trainer.accumulate_grad_batches=2")),
}
"""Machines and settings."""

SETTINGS = (
    "model.d_model=64",
    "model.ffn_dim=128",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
    "model.dropout=0.1",
    "data.batch_tokens=1024",
    "loss.bfloat16=false",
    "schedule.warmup=20",
    "decoding=greedy",
    "callbacks.samples=0",
    "logger.tensorboard=false",
    "trainer.log_every_n_steps=1",
)
LOGGED = ("train/loss", "val/loss", "val/bleu")


def calls(machines: int, arguments: Sequence[str]) -> list[list[str]]:
    """The command of each machine."""
    train = ["-m", "transformer", "train", *arguments]
    if machines == 1:
        return [[sys.executable, *train]]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={machines}"]
    launcher += ["--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    return [[*launcher, f"--node-rank={node}", *train] for node in range(machines)]


def run(name: str, folder: Path, steps: int) -> None:
    """Train, unless that has been done."""
    if is_finished(folder):
        return
    machines, settings = RUNS[name]
    length = (f"trainer.max_steps={steps}", f"trainer.val_check_interval={steps // 2}")
    where = (f"hydra.run.dir={folder}", "checkpoint=auto")
    arguments = [*SETTINGS, *settings, *length, *where]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(call, cwd=ROOT, env=environment) for call in calls(machines, arguments)
    ]
    if codes := [code for process in started if (code := process.wait())]:
        sys.exit(f"{name} ends with {codes[0]}")


def curve(folder: Path) -> dict[str, dict[int, float]]:
    """Each of what is logged, by update."""
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {
        name: {int(row["step"]) + 1: float(row[name]) for row in rows if row.get(name)}
        for name in LOGGED
    }


def table(curves: dict[str, dict[str, dict[int, float]]]) -> list[str]:
    """The lines of a Markdown table, a column a run."""
    lines = [
        "| update | | " + " | ".join(curves) + " |",
        "| ---: | --- |" + " ---: |" * len(curves),
    ]
    first = next(iter(curves.values()))
    for name in LOGGED:
        for step in first[name]:
            if name == "train/loss" and step > 3 and step % 5:
                continue
            values = " | ".join(f"{each[name][step]:.6f}" for each in curves.values())
            lines.append(f"| {step} | {name} | {values} |")
    return lines


def main() -> None:
    """Run all, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--work", type=Path, default=Path("runs/processes"))
    options = parser.parse_args()
    curves = {}
    for name in options.only:
        words = name.replace(",", "").replace(" ", "-")
        folder = options.work.resolve() / f"{words}-{options.steps}"
        run(name, folder, options.steps)
        curves[name] = curve(folder)
    print("\n".join(table(curves)))
    expected = next(iter(curves.values()))
    largest = {
        name: {
            key: max(abs(each[key][step] - value) for step, value in expected[key].items())
            for key in LOGGED
        }
        for name, each in curves.items()
    }
    print(json.dumps({"steps": options.steps, "largest difference": largest, "curves": curves}))


if __name__ == "__main__":
    main()
