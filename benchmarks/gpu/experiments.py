"""Train the experiments of Multi30k on a GPU, several at a time, and score them on their test sets.

    python -m benchmarks.gpu.experiments --data FOLDER [--seeds 1 2 3] [--deadline 560]
    python -m benchmarks.gpu.experiments --rehearse     # one seed, small and on a CPU

FOLDER holds ``multi30k`` and ``multi30k_tok``, as ``data.root`` wants them: nothing is downloaded.
English to German raw and tokenized, German to English and English to French, the first seed of each
before the second. Validation chooses the checkpoint; the test set is scored once. At the deadline
running trainings write a checkpoint and end; the same command goes on with them. What a finished
run has given is a line of runs/gpu_experiments/experiments.jsonl (``--folder``), and in the table
that is printed. The exit code is 1 if some are not finished, 2 without a GPU.
"""

import argparse
import gzip
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.gpu.models import TINY
from benchmarks.results.results import (
    WITH_ADAM,
    Measured,
    Result,
    columns,
    measured,
    row,
)
from benchmarks.support.made_up_text import write_text
from benchmarks.support.records import Records, markdown
from benchmarks.support.trained import ROOT, Trained, train_all
from transformer.checkpoint.run_directory import is_finished
from transformer.data.corpora.catalog import PUBLISHED

EXPERIMENTS = [
    Result("multi30k_tiny", "multi30k", "en-de", "B"),
    Result("multi30k_tok", "multi30k_tok", "en-de", "A"),
    Result("multi30k_tiny", "multi30k", "de-en", "B"),
    Result("multi30k_tiny", "multi30k", "en-fr", "B"),
]
ON_GPU = (
    *WITH_ADAM,
    "trainer=gpu",
    "data.batch_tokens=8192",
    "trainer.max_steps=3000",
    "schedule.warmup=300",
    "trainer.val_check_interval=500",
)
"""Four times the batch and a quarter of the updates that Adam took on a CPU (README.md); Muon was
not tried with such batches."""
SMALL = (
    *(f"model.{key}={value}" for key, value in TINY.items()),
    "tokenizer.vocab_size=300",
    "data.batch_tokens=512",
    "trainer.max_steps=4",
    "schedule.warmup=2",
    "trainer.val_check_interval=2",
    "decoding=greedy",
)
PAIRS = 300
"""Of a rehearsal's text."""
RESERVE = 20
"""Seconds before the deadline at which running trainings are stopped."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--data", type=Path)
    kind.add_argument("--rehearse", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="SEED")
    parser.add_argument("--processes", type=int, default=4, help="that train at a time: 4")
    parser.add_argument("--deadline", type=float, default=560.0, metavar="SECONDS")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "gpu_experiments")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    began = time.monotonic()
    options = parse(arguments)
    until = began + options.deadline - RESERVE
    if not options.rehearse and not torch.cuda.is_available():
        print(
            "error: benchmarks.gpu.experiments needs a CUDA GPU; --rehearse does not",
            file=sys.stderr,
        )
        return 2
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.rehearse:
        options.data = made_up(folder / "text")
        options.seeds = [1]
        gpu = ""
        changes = (*SMALL, f"data.cache={folder / 'cache'}")
    else:
        gpu = f"{torch.cuda.get_device_name()}, "
        changes = (*ON_GPU, f"data.cache={folder / 'cache'}")
    runs: dict[Trained, tuple[Result, int]] = {}
    for seed in options.seeds:
        for experiment in EXPERIMENTS:
            run = experiment.run(options.data.resolve(), folder, seed)
            runs[replace(run, overrides=(*run.overrides, *changes))] = experiment, seed
    records = Records(folder / "experiments.jsonl", Measured, key=("name", "seed"))
    for run in train_all(list(runs), processes=options.processes, threads=1, until=until):
        result = measured(*runs[run], run)
        records.keep(replace(result, machine=f"{gpu}{result.machine}"))
    print("\n".join(tables(records.read())))
    return int(not all(is_finished(run.folder) for run in runs))


def tables(results: Sequence[Measured]) -> list[str]:
    """A row for each experiment; tokenized text has a table of its own."""
    lines: list[str] = []
    for text in ("B", "A"):
        measured_runs = {
            experiment: [result for result in results if result.name == experiment.name]
            for experiment in EXPERIMENTS
            if experiment.text == text
        }
        rows = [row(experiment, runs) for experiment, runs in measured_runs.items() if runs]
        if rows:
            (names,) = {tuple(result.scores) for runs in measured_runs.values() for result in runs}
            lines += [*markdown(columns(names), rows), ""]
    return lines


def made_up(folder: Path) -> Path:
    """Write made-up text under the names of the corpora."""
    for name in ("multi30k", "multi30k_tok"):
        corpus = PUBLISHED[name]
        (folder / name).mkdir(parents=True, exist_ok=True)
        for seed, split in enumerate(corpus.splits):
            pairs = folder / "pairs.tsv"
            write_text(pairs, PAIRS if split == "train" else 10, seed)
            lines = pairs.read_text(encoding="utf-8").splitlines()
            sides = list(zip(*(line.split("\t") for line in lines), strict=True))
            for language, side in zip(corpus.languages, [*sides, sides[0]], strict=False):
                file = folder / name / corpus.file_name(language, split)
                text = "".join(f"{line}\n" for line in side).encode()
                file.write_bytes(gzip.compress(text, mtime=0) if file.suffix == ".gz" else text)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
