"""The case of benchmarks/gpu.py on beam search, beside CTranslate2 with the same weights.

It does not know how well a model translates: its weights are random.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from benchmarks.gpu_runs import new_folder, run_settings
from benchmarks.gpu_steps import Bench, Rows, Stopwatch
from transformer.interchange.ctranslate2 import write_ctranslate2
from transformer.model.transformer import Transformer
from transformer.tasks.registry import make_task

if TYPE_CHECKING:
    from benchmarks.decoding_subjects import Subject

SEARCH_TOKENS = 65_536
"""Of a batch of the search, counted once a hypothesis."""


def decode(bench: Bench, counts: Sequence[int] = (32, 256, 1024)) -> Rows:
    """Beam search of a model with random weights, whose translations are all equally long."""
    # Its engines need packages that the other cases do not.
    from benchmarks.decoding_engines import Translate, ctranslate2_engine, ours

    subject = decoding_subject(bench, max(counts))
    calls: dict[str, Translate] = {"ours, bfloat16": ours(subject, "bfloat16", subject.search)}
    precision = "float16" if bench.device.type == "cuda" else "float32"
    folder, name = new_folder(bench), f"CTranslate2, {precision}"
    write_ctranslate2(subject.model, subject.tokenizer, folder, precision)
    try:
        theirs = ctranslate2_engine(
            subject, folder, precision, subject.search, threads=0, device=bench.device.type
        )
        theirs(subject.sources[:1], SEARCH_TOKENS)
    except RuntimeError as error:  # built for CUDA libraries that are not here
        yield {"engine": f"{name}: {error}"}
    else:
        calls[name] = theirs
    for count in counts:
        for engine, translate in calls.items():
            sources = subject.sources[:count]
            translate(sources, SEARCH_TOKENS)
            taken = []
            for _ in range(bench.turns):
                watch = Stopwatch(bench.device)
                translate(sources, SEARCH_TOKENS)
                taken.append(watch.stop() / 1000)
            speed = count / statistics.median(taken)
            yield {"engine": engine, "sentences": count, "sentences/s": speed}


def decoding_subject(bench: Bench, sentences: int) -> "Subject":
    """A new model, and the first sentences of the text."""
    from benchmarks.decoding_subjects import FORCED_LENGTH, Subject

    config = bench.config(*run_settings(bench, decoding="beam"))
    task = make_task(config)
    task.data.prepare_data()
    model, tokenizer = task.module.model, task.data.tokenizer
    assert isinstance(model, Transformer)
    with (bench.folder / f"train-{bench.pairs}.tsv").open(encoding="utf-8") as file:
        lines = [line.split("\t")[0] for line in islice(file, sentences)]
    search = replace(
        config.decoding,
        min_length=FORCED_LENGTH,
        max_length_ratio=0.0,
        max_length_offset=FORCED_LENGTH,
    )
    model.to(bench.device).eval()
    sources = tokenizer.encode_source(lines)
    return Subject("base", model, tokenizer, sources, None, config.metrics, search)
