"""Size, speed, score and memory of models and of their small forms, in one table.

    python benchmarks/decoding/students.py --test TEST.en TEST.de --row teacher RUN beam=5 \\
        --row "student, int8" RUN/export/safetensors-int8 precision=int8 \\
        --row "student, CTranslate2" RUN/export/ctranslate2-int8 engine=ctranslate2

A row is a name, a run or an export, and what it differs in: ``engine=torch|ctranslate2|onnx``,
``beam=1``, ``precision=float32``, ``shortlist=FILE``. Each is a process of its own with one thread.
They translate the test text from text to text in turns, after a turn that warms up; sentences a
second are by processor time, of the fastest turn. MB are those of the files of an export, or of
the float32 weights of a run; memory is the most that the process has had resident. ``times`` is
how many times as fast as the first row a row is.
"""

import argparse
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.support.records import machine, markdown, write_between

Translate = Callable[[Sequence[str]], list[str]]
COLUMNS = ("model", "MB", "sentences/s", "times", "BLEU", "MiB of memory")
NEUTRAL = {"beam": "1", "engine": "torch", "precision": "float32", "shortlist": ""}


@dataclass
class Row:
    """A model in a process, and what it has shown.

    Attributes:
        name: Of the row.
        size: Of its files or weights, MB.
        pipe: To its process.
        seconds: Of each turn.
        texts: Its translations.
        memory: MiB.
    """

    name: str
    size: float
    pipe: Any
    seconds: list[float]
    texts: list[str]
    memory: float = 0.0


def loaded(path: Path, settings: dict[str, str]) -> tuple[Translate, int]:
    """What translates, and the bytes of its weights."""
    import torch

    from transformer.decoding.translator import Translator, trained_with
    from transformer.interchange.ctranslate2 import CTranslate2Engine
    from transformer.interchange.onnx import OnnxGreedy
    from transformer.interchange.translators import load_checkpoints
    from transformer.model.layers.quantization import in_precision

    torch.set_num_threads(1)
    if settings["engine"] == "onnx":
        return OnnxGreedy(path), 0
    [checkpoint] = load_checkpoints([path])
    trained = trained_with(checkpoint)
    beam = int(settings["beam"])
    changes: dict[str, Any] = {"beam_size": beam, "stopping": "full"}
    changes |= {"shortlist": settings["shortlist"]} if settings["shortlist"] else {}
    changes["algorithm"] = "beam" if beam > 1 else "greedy"
    search = replace(trained.search, **changes)
    weights = sum(one.numel() * one.element_size() for one in checkpoint.model.parameters())
    model = checkpoint.model
    ours = settings["engine"] == "torch"
    if ours:
        model = in_precision(model, settings["precision"])  # type: ignore[arg-type]
    if ours:
        translator = Translator(model, trained.tokenizer, search)
    else:  # the folder of CTranslate2 has no weights for torch
        engine = CTranslate2Engine(path, torch.device("cpu"))
        translator = Translator(model.to("meta"), trained.tokenizer, search, engine=engine)
    return lambda texts: [one.text for one in translator.translate(texts)], weights


def serve(path: Path, settings: dict[str, str], pipe: Connection) -> None:
    """Translate what comes through the pipe; answer with seconds, texts and memory."""
    translate, weights = loaded(path, settings)
    pipe.send(weights)
    while texts := pipe.recv():
        began = time.process_time()
        found = translate(texts)
        seconds = time.process_time() - began
        pipe.send((seconds, found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def started(name: str, path: Path, settings: dict[str, str]) -> Row:
    """The row of a model that is loaded."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(path, NEUTRAL | settings, theirs), daemon=True).start()
    theirs.close()
    weights = ours.recv()
    exported = not (path / "checkpoints").is_dir() and path.is_dir()
    files = [file for file in path.rglob("*") if file.is_file()] if exported else []
    size = sum(file.stat().st_size for file in files) or weights
    return Row(name, size / 1e6, ours, [], [])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--test", type=Path, nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--row", nargs="+", action="append", required=True)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--write", metavar="PAGE:NAME", help="put the table between two comments")
    options = parser.parse_args()
    from transformer.evaluation.metrics import score
    from transformer.settings.metrics import MetricsConfig

    os.environ["OMP_NUM_THREADS"] = "1"
    sources, references = (file.read_text(encoding="utf-8").splitlines() for file in options.test)
    rows = [
        started(name, Path(path), dict(setting.split("=", 1) for setting in settings))
        for name, path, *settings in options.row
    ]
    for _ in range(1 + options.turns):
        for row in rows:
            row.pipe.send(sources)
            seconds, row.texts, row.memory = row.pipe.recv()
            row.seconds.append(seconds)
    for row in rows:
        row.pipe.send([])
    rates = [len(sources) / min(row.seconds[1:]) for row in rows]
    scores = [score(row.texts, references, ("bleu",), config=MetricsConfig())[0] for row in rows]
    cells = [
        [
            row.name,
            f"{row.size:.1f}",
            f"{rate:.1f}",
            f"{rate / rates[0]:.2f}",
            f"{scored.value:.2f}",
            f"{row.memory:.0f}",
        ]
        for row, rate, scored in zip(rows, rates, scores, strict=True)
    ]
    about = f"{len(sources):,} sentences, {machine(1)}, `{scores[0].signature}`:"
    lines = [about, "", *markdown(COLUMNS, cells)]
    print("\n".join(lines))
    if options.write:
        page, _, name = options.write.partition(":")
        write_between(Path(page), name, lines)


if __name__ == "__main__":
    main()
