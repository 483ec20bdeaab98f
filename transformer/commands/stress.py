"""``stress``: a translator on disturbed text."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

from transformer.checkpoint.checkpoint import Loaded
from transformer.checkpoint.run_directory import run_folder
from transformer.commands.scored_text import (
    changed_metrics,
    other_task,
    pairs_to_score,
    text_to_score,
)
from transformer.common.errors import InputError, did_you_mean
from transformer.common.files import require_writable, write_text_whole
from transformer.evaluation.metrics import build_metric
from transformer.interchange.translators import load_translator, local_run
from transformer.quality.failures.flags import Detector
from transformer.quality.stress import StressReport, StressTest, disturbances_of, sample_size
from transformer.settings.evaluation import StressConfig

SECONDS = 120.0
"""Approximate duration of a test with ``sentences="auto"``."""


def stress(
    config: StressConfig,
    show: Callable[[str | StressReport], object] = lambda event: None,
    *,
    loaded: Loaded = lambda checkpoints: None,
) -> StressReport:
    """Score a translator on disturbed text; write ``stress.json`` to the run or to ``output``.

    Args:
        config: The settings; InputError if they contradict each other or the checkpoint.
        show: Is called with lines of progress, and with the report before it is written.
        loaded: As for ``load_translator``.
    """
    paths = [local_run(name) for name in config.translator.checkpoints]
    task = other_task(paths, trusted=config.translator.trust)
    if task is not None:
        raise InputError(f"stress disturbs text to text; the checkpoint is of task={task}")
    translator, run = load_translator(config.translator, loaded=loaded)
    known = disturbances_of(translator.tokenizer)
    names = config.disturbances or tuple(known)
    for name in names:
        if name not in known:
            near = did_you_mean(name, known) or f"; choose {', '.join(known)}"
            raise InputError(f"disturbances has {name!r}, which is no disturbance{near}")
    metrics = changed_metrics(config, run, config.checkpoint)
    metric = config.metric or metrics.choose
    build_metric(metric, metrics)
    pairs = pairs_to_score(text_to_score(config, run, config.checkpoint))
    output = config.output or run_folder(paths[0])
    require_writable(output)
    if config.sentences == "auto":
        size = sample_size(translator, [pair[0] for pair in pairs], len(names) + 1, SECONDS)
        if size < len(pairs):
            sample = f"the first {size:,} of {len(pairs):,} sentences, about two minutes"
            show(f"{sample}; sentences=null takes all, sentences=N others")
        pairs = pairs[:size]
    else:
        pairs = pairs[: config.sentences]
    # Flags compare an output with the source text.
    reads_files = translator.tokenizer.reads_files
    tags = translator.tokenizer.source_tags
    detector = None if reads_files else Detector.load(paths[0], run.data, tags)
    test = StressTest(translator, detector, pairs, metrics, metric, config.seed, known)
    numbers = count(1)
    report = test.run(names, lambda name: show(f"{next(numbers)}/{len(names)} {name}"))
    show(report)
    save_stress(output, report)
    return report


def save_stress(folder: Path, report: StressReport) -> None:
    """Write ``stress.json``, whole."""
    write_text_whole(folder / "stress.json", json.dumps(report.to_json(), indent=1) + "\n")
