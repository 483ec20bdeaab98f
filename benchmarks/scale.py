"""Prepare and train on so many made-up pairs, and see what time and memory each stage takes.

    python benchmarks/scale.py [--pairs 10_000_000] [--folder runs/scale] [--tokens 36_000_000]

Each stage is a process of its own: *generate* writes the text (and says nothing of the framework);
*prepare* learns the vocabulary and encodes the text; *train* is ``train.py``, which finds both in
its cache, for some updates of the tiny model; *batches* goes through ``--tokens`` target tokens
(an hour of training at 10,000 a second) without the model, in one loader worker, and then begins
the next epoch. A table, and as the last line the same as JSON.
"""

import argparse
import json
import logging
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks.made_up_text import write_text
from benchmarks.process_memory import Measurement, measure

if TYPE_CHECKING:
    from transformer.data.datamodule import DataModule

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("generate", "prepare", "train", "batches")
UPDATES = 20


def overrides(folder: Path) -> list[str]:
    """The run: everything but the text is the default."""
    return [
        *("data=files", f"data.train={folder}/train.tsv", f"data.validation={folder}/val.tsv"),
        *("data.test_size=0", f"data.cache={folder}/cache", "data.workers=1"),
        *(f"trainer.max_steps={UPDATES}", "trainer.log_every_n_steps=1", "decoding=greedy"),
        "logger.tensorboard=false",
    ]


def generate(folder: Path, pairs: int) -> None:
    """Write the training text and a little to validate on."""
    write_text(folder / "train.tsv", pairs, seed=1)
    write_text(folder / "val.tsv", 20, seed=2)


def prepare(folder: Path) -> None:
    """Fill the cache, as a run does before it trains."""
    _data(folder).prepare_data()


def go_through_batches(folder: Path, tokens: int) -> None:
    """Load batches until their target tokens are so many, then the first of the next epoch."""
    data = _data(folder)
    data.prepare_data()
    data.setup("fit")
    loader = data.train_dataloader()
    print("mark planned", flush=True)
    seen = batches = quarters = 0
    for update in loader:
        batches += len(update.batches)
        seen += sum(batch.target_tokens for batch in update.batches)
        while seen * 4 >= tokens * (quarters + 1) and quarters < 4:
            quarters += 1
            print(f"mark quarter {quarters}: {batches} batches", flush=True)
        if quarters == 4:
            break
    data.teardown("fit")
    assert data.row.epoch_length is not None
    _ = data.row[data.row.epoch_length]
    print("mark next epoch laid out", flush=True)


def _data(folder: Path) -> "DataModule":
    from omegaconf import OmegaConf

    from transformer.cli.compose import compose_config
    from transformer.data.datamodule import DataModule
    from transformer.training.config import run_config

    composed = OmegaConf.to_container(compose_config("train", overrides(folder)))
    config = run_config(cast("dict[str, Any]", composed))
    return DataModule(config.data, config.tokenizer)


def row(stage: str, taken: Measurement) -> str:
    """A line of the table."""
    peak = taken.peak
    return (
        f"| {stage} | {taken.seconds:,.0f} | {peak.rss:,.0f} | {peak.pss:,.0f} "
        f"| {peak.private:,.0f} |"
    )


def marks(taken: Measurement) -> list[dict[str, object]]:
    """When the stage came how far, and its memory then."""
    return [
        {"what": line.partition("mark ")[2] or "first update", "seconds": seconds} | asdict(memory)
        for seconds, memory, line in taken.lines
        if line.startswith("mark ") or "update 1/" in line
    ]


def main() -> None:
    """Measure every stage, or do the work of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "scale")
    parser.add_argument("--tokens", type=int, default=36_000_000)
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.stage is not None:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        work(arguments.stage, folder, arguments.pairs, arguments.tokens)
        return
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "cache", ignore_errors=True)
    print("| stage | seconds | RSS, MiB | PSS, MiB | without files, MiB |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    found = {}
    for stage in STAGES:
        taken = measure(command(stage, arguments), ROOT)
        print(row(stage, taken), flush=True)
        for seconds, _, line in taken.lines:
            print(f"{stage} {seconds:7.1f} {line}", file=sys.stderr)
        found[stage] = {"seconds": taken.seconds} | asdict(taken.peak) | {"marks": marks(taken)}
    print(json.dumps({"pairs": arguments.pairs, "tokens": arguments.tokens, "stages": found}))


def command(stage: str, arguments: argparse.Namespace) -> list[str]:
    """What runs a stage."""
    folder = arguments.folder.resolve()
    if stage == "train":
        return [sys.executable, "train.py", *overrides(folder), f"hydra.run.dir={folder}/run"]
    sizes = ["--pairs", str(arguments.pairs), "--tokens", str(arguments.tokens)]
    this = [sys.executable, "-m", "benchmarks.scale", "--stage", stage]
    return [*this, *sizes, "--folder", str(folder)]


def work(stage: str, folder: Path, pairs: int, tokens: int) -> None:
    """Do the work of a stage."""
    if stage == "generate":
        generate(folder, pairs)
    elif stage == "prepare":
        prepare(folder)
    else:
        go_through_batches(folder, tokens)


if __name__ == "__main__":
    main()
