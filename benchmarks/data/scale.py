"""Time and memory of each stage of a run on a large made-up corpus.

    python benchmarks/data/scale.py [--pairs N] [--folder runs/scale] [--only STAGE…] [KEY=VALUE…]

Each stage is a process of its own: *generate* writes the text (and says nothing of the framework);
*prepare* learns the vocabulary and encodes the text; *train* is ``train.py``, which finds both in
its cache, for some updates of the tiny model; *batches* goes through ``--tokens`` target tokens
(an hour of training at 10,000 a second) without the model, in one loader worker, and then begins
the next epoch. ``KEY=VALUE`` go to the run. A table, and as the last line the same as JSON, with
the figures at each mark.
"""

import argparse
import json
import logging
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.support.made_up_text import write_text
from benchmarks.support.process_memory import Measurement, measure

if TYPE_CHECKING:
    from transformer.data.datamodules.translation import TranslationData

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("generate", "prepare", "train", "batches")
UPDATES = 20


def overrides(folder: Path, extra: Sequence[str]) -> list[str]:
    """The run: everything but the text is the default, or what the caller says."""
    return [
        "data=files",
        f"data.train={folder}/train.tsv",
        f"data.validation={folder}/val.tsv",
        "data.test_size=0",
        f"data.cache={folder}/cache",
        "data.workers=1",
        f"trainer.max_steps={UPDATES}",
        "trainer.log_every_n_steps=1",
        "decoding=greedy",
        "logger.tensorboard=false",
        *extra,
    ]


def generate(folder: Path, pairs: int) -> None:
    """Write the training text and a little to validate on."""
    write_text(folder / "train.tsv", pairs, seed=1)
    write_text(folder / "val.tsv", 20, seed=2)


def prepare(folder: Path, extra: Sequence[str]) -> None:
    """Fill the cache, as a run does before it trains."""
    _data(folder, extra).prepare_data()


def go_through_batches(folder: Path, tokens: int, extra: Sequence[str]) -> None:
    """Load batches until their target tokens are so many, then the first of the next epoch."""
    data = _data(folder, extra)
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
    assert data.sequence.epoch_length is not None
    _ = data.sequence[data.sequence.epoch_length]
    print("mark next epoch laid out", flush=True)


def _data(folder: Path, extra: Sequence[str]) -> "TranslationData":
    from transformer.cli.config import compose_config, run_settings
    from transformer.data.datamodules.translation import TranslationData

    config = run_settings(compose_config("train", overrides(folder, extra)))
    return TranslationData(config)


def row(stage: str, taken: Measurement) -> str:
    """A line of the table."""
    peak = taken.peak
    return (
        f"| {stage} | {taken.seconds:,.0f} | {taken.cpu_seconds:,.0f} | {peak.rss:,.0f} "
        f"| {peak.pss:,.0f} | {peak.private:,.0f} |"
    )


def marks(taken: Measurement) -> list[dict[str, Any]]:
    """When the stage came how far, and its memory then."""
    return [
        {"what": line.text.partition("mark ")[2] or "first update", "seconds": line.seconds}
        | {"cpu_seconds": line.cpu_seconds}
        | asdict(line.memory)
        for line in taken.lines
        if line.text.startswith("mark ") or "update 1/" in line.text
    ]


def describe(stage: str, taken: Measurement) -> dict[str, Any]:
    """All figures of a stage."""
    figures = {"seconds": taken.seconds, "cpu_seconds": taken.cpu_seconds} | asdict(taken.peak)
    return figures | {"marks": marks(taken)}


def main() -> None:
    """Measure every stage, or do the work of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "scale")
    parser.add_argument("--tokens", type=int, default=36_000_000)
    parser.add_argument("--only", nargs="*", choices=STAGES, default=STAGES, metavar="STAGE")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    arguments, extra = parser.parse_known_args()
    folder = arguments.folder.resolve()
    if arguments.stage is not None:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        work(arguments, folder, extra)
        return
    folder.mkdir(parents=True, exist_ok=True)
    if "prepare" in arguments.only:
        shutil.rmtree(folder / "cache", ignore_errors=True)
    if "train" in arguments.only:
        shutil.rmtree(folder / "run", ignore_errors=True)
    print("| stage | seconds | CPU seconds | RSS, MiB | PSS, MiB | without files, MiB |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    results = {}
    for stage in arguments.only:
        taken = measure(command(stage, arguments, extra), ROOT)
        print(row(stage, taken), flush=True)
        for line in taken.lines:
            print(f"{stage} {line.seconds:7.1f} {line.text}", file=sys.stderr)
        results[stage] = describe(stage, taken)
    print(json.dumps({"pairs": arguments.pairs, "tokens": arguments.tokens, "stages": results}))


def command(stage: str, arguments: argparse.Namespace, extra: Sequence[str]) -> list[str]:
    """What runs a stage."""
    folder = arguments.folder.resolve()
    if stage == "train":
        where = f"hydra.run.dir={folder}/run"
        return [sys.executable, "train.py", *overrides(folder, extra), where]
    sizes = ["--pairs", str(arguments.pairs), "--tokens", str(arguments.tokens)]
    this = [sys.executable, "-m", "benchmarks.data.scale", "--stage", stage]
    return [*this, *sizes, "--folder", str(folder), *extra]


def work(arguments: argparse.Namespace, folder: Path, extra: Sequence[str]) -> None:
    """Do the work of a stage."""
    if arguments.stage == "generate":
        generate(folder, arguments.pairs)
    elif arguments.stage == "prepare":
        prepare(folder, extra)
    else:
        go_through_batches(folder, arguments.tokens, extra)


if __name__ == "__main__":
    main()
