"""Speed of translation beside Hugging Face's ``generate`` and CTranslate2 with the same weights.

    python benchmarks/decoding/speed.py --run RUN [--threads 1] [--quick]
        [--write benchmarks/decoding/speed.md]

All engines translate the same sentences with the same beam and number of threads; run no other
program beside it. RUN is a run of ``model.norm_order=post``, as Hugging Face's Marian has; its test
split is translated. Without it a tiny model is trained for a short while, on pocket or on Multi30k
in ``--data-root FOLDER``, and kept under runs/. The second model is random and of base size; its
translations are forced to one length.

Input and output are subwords: no engine is timed with a tokenizer. Each sorts its sentences by
length, and takes the best of a few batch sizes, tried on a part of the sentences. A sentence ends
when its beam is full; hypotheses compare by their mean log-probability, the one length penalty that
all have. ``same`` is the fraction of translations equal to those of ours in float32. A translation
that reaches the longest length may differ: only ours scores the end that is forced there.

``generate`` takes sentences in their order; that is measured, too (``unsorted``), beside batches of
similar length.

Numbers are medians of interleaved repeats. The last line of stdout is JSON, in sentences a second
of the tiny model (``base_…``: of the other).
"""

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.table import Table

from benchmarks.support.records import machine, write_between
from transformer.common.errors import InputError
from transformer.evaluation.metrics import score
from transformer.reports.scores import table_console

if TYPE_CHECKING:
    from benchmarks.support.engines import Engine, Pieces
    from benchmarks.support.translation_models import Subject

COLUMNS = ("engine", "search", "precision", "batch", "sentences/s", "tokens/s", "same", "BLEU")
ENGINES = {"ours": "ours", "hf": "Hugging Face", "ct2": "CTranslate2"}


@dataclass
class Measured:
    """What came of one engine.

    Attributes:
        engine: Which.
        batch_size: The best one.
        seconds: Of each repeat.
        found: Its translations.
        same: Share of them that are equal to those of ours in float32.
    """

    engine: "Engine"
    batch_size: int
    seconds: list[float] = field(default_factory=list)
    found: "list[Pieces]" = field(default_factory=list)
    same: float = 1.0

    @property
    def sentences_per_second(self) -> float:
        """By the median repeat."""
        return len(self.found) / statistics.median(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        """By the median repeat; of the best hypothesis, its end included."""
        return sum(len(row) + 1 for row in self.found) / statistics.median(self.seconds)

    def row(self, subject: "Subject") -> list[str]:
        """As the table shows it."""
        bleu = ""
        if subject.references is not None:
            texts = subject.tokenizer.decode_target(self.found)
            (scored,) = score(texts, subject.references, ("bleu",), config=subject.metrics)
            bleu = f"{scored.value:.1f}"
        engine = self.engine
        return [
            ENGINES[engine.name],
            engine.search,
            engine.precision,
            f"{self.batch_size} {engine.unit}",
            f"{self.sentences_per_second:.1f}",
            f"{self.tokens_per_second:.0f}",
            f"{100 * self.same:.1f}%",
            bleu,
        ]


def timed(engine: "Engine", sources: "list[list[int]]", size: int) -> "tuple[float, list[Pieces]]":
    """Seconds, and the translations."""
    began = time.perf_counter()
    translations = engine.translate(sources, size)
    return time.perf_counter() - began, translations


def measure(subject: "Subject", threads: int, repeats: int, tried: int) -> list[Measured]:
    """Every engine on every sentence.

    Args:
        subject: Model and sentences.
        threads: For each engine.
        repeats: Times that all of them run, one after the other.
        tried: Sentences to choose the batch size with.
    """
    from benchmarks.support.engines import UNSORTED, engines

    part = subject.sources[:: max(1, len(subject.sources) // tried)]
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for engine in engines(subject, threads, Path(folder)):
            engine.translate(part[:2], engine.batch_sizes[0])
            times = {size: timed(engine, part, size)[0] for size in engine.sizes_for(len(part))}
            results.append(Measured(engine, min(times, key=lambda size: times[size])))
        for repeat in range(repeats):
            for result in results:
                seconds, translations = timed(result.engine, subject.sources, result.batch_size)
                result.seconds.append(seconds)
                result.found = [tuple(row) for row in translations]
            print(f"{subject.name}: {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
    for result in results:
        search = result.engine.search.removesuffix(UNSORTED)
        [ours] = [r for r in results if r.engine.key == f"ours_{search}_float32"]
        pairs = list(zip(result.found, ours.found, strict=True))
        result.same = sum(a == b for a, b in pairs) / len(pairs)
    return results


def show(subject: "Subject", results: list[Measured], title: str) -> list[str]:
    """The table on stderr; returns it as Markdown."""
    rows = [result.row(subject) for result in results]
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in COLUMNS:
        numeric = column in ("sentences/s", "tokens/s", "same", "BLEU")
        table.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*row)
    table_console().print(table)
    lines = [f"| {' | '.join(row)} |" for row in [COLUMNS, ["---"] * len(COLUMNS), *rows]]
    return [f"{title}:", "", *lines, ""]


def summary(tiny: list[Measured], base: list[Measured], beam: int) -> dict[str, float]:
    """The last line of stdout: what is promised first, then the rest."""
    speeds = {result.engine.key: result.sentences_per_second for result in tiny}
    names = [f"{engine}_beam{beam}_float32" for engine in ENGINES]
    values = {name: speeds.pop(name) for name in (*names, f"ct2_beam{beam}_int8")}
    ours, hugging_face, ctranslate2 = (values[name] for name in names)
    values |= {"ratio_hf": ours / hugging_face, "ratio_ct2": ours / ctranslate2}
    values["ratio_hf_unsorted"] = ours / speeds[f"hf_beam{beam}_unsorted_float32"]
    values |= speeds
    values |= {f"base_{result.engine.key}": result.sentences_per_second for result in base}
    return {name: round(value, 3) for name, value in values.items()}


def parse() -> argparse.Namespace:
    """The call; ``--quick`` sets what is not given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer sentences")
    parser.add_argument("--sentences", type=int, help="1000; quick: 400")
    parser.add_argument("--base-sentences", type=int, help="of the second model: 1000; quick: 64")
    parser.add_argument("--repeats", type=int, help="3; quick: 3, of the second model 1")
    parser.add_argument("--steps", type=int, help="updates where a model is trained: 1000, 300")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables there")
    arguments = parser.parse_args()
    defaults = {"sentences": 1000, "base_sentences": 1000, "repeats": 3, "steps": 1000}
    if arguments.quick:
        defaults |= {"sentences": 400, "base_sentences": 64, "steps": 300}
    for name, value in defaults.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


def run(arguments: argparse.Namespace) -> None:
    """Measure and show.

    Raises:
        InputError: A model cannot be had, or an engine cannot express it.
    """
    from benchmarks.support.translation_models import random_base, short_run, trained

    # CTranslate2 and Hugging Face have advice on every call.
    logging.disable(logging.WARNING)
    torch.set_num_threads(arguments.threads)
    path = arguments.run or short_run(arguments.data_root, arguments.steps)
    tiny = trained(path, arguments.sentences, arguments.beam)
    base = random_base(tiny).first(arguments.base_sentences)
    lines: list[str] = []
    results: dict[str, list[Measured]] = {}
    for subject, repeats in ((tiny, arguments.repeats), (base, 1 if arguments.quick else None)):
        tried = max(32, len(subject.sources) // 5)
        measured = measure(subject, arguments.threads, repeats or arguments.repeats, tried)
        sentences = f"{len(subject.sources):,} sentences, {machine(arguments.threads)}"
        parameters = sum(parameter.numel() for parameter in subject.model.parameters())
        title = f"{subject.name}, {parameters / 1e6:.1f} M parameters, {sentences}"
        lines += show(subject, measured, title)
        results[subject.name] = measured
    # What was measured is not lost where the page cannot be written.
    print(json.dumps(summary(results["tiny"], results["base"], arguments.beam)), flush=True)
    if arguments.write:
        write_between(arguments.write, "decoding", lines)


def main() -> int:
    """Returns the exit code: 2 where an engine is not installed or the call is wrong."""
    arguments = parse()
    for package in ("ctranslate2", "transformers"):
        if find_spec(package) is None:
            print(f"error: {package} is not installed: pip install -e '.[dev]'", file=sys.stderr)
            return 2
    try:
        run(arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
