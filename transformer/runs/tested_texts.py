"""Texts on which runs were tested: scores, intervals, buckets and sentences, as plain values."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.files import given_path, read_json
from transformer.data.corpora.evaluation_text import read_texts, run_split
from transformer.evaluation import comparison as comparing
from transformer.reports.page.sentences import moved_rows, sentence_rows
from transformer.reports.scores import failures_file
from transformer.settings.evaluation import ComparisonKeys
from transformer.settings.run import RunConfig
from transformer.tasks.registry import is_translation

_TRAINING_PAIRS = 10_000
"""Pairs whose words are counted; more would take longer than the rest of a report."""

Values = dict[str, Any]


def tested_text(
    folders: Sequence[Path],
    configs: Sequence[RunConfig],
    name: str,
    scores: Sequence[list[Values]],
    notes: list[str],
) -> Values:
    """Scores on a text, and what comparing translations gives, if they and the text are there."""
    values: Values = {"name": name, "scores": scores, "comparison": None, "sentences": []}
    if not all(is_translation(config.task) for config in configs):
        return values
    try:
        comparison = _compared(folders, configs, name, notes)
    except (InputError, OSError) as error:
        notes.append(f"{name}: neither intervals nor sentences: {error}")
        return values
    for metric in comparison.metrics:
        for run, system in zip(scores, metric.systems, strict=True):
            former = next((o["score"] for o in run if o["name"] == metric.name), system.score)
            if abs(former - system.score) > 0.01:
                notes.append(f"{name}: {metric.name} was {former}, and is now {system.score:.2f}")
    if len(folders) > 1:
        rows = moved_rows(comparison)
    else:
        failures = read_json(folders[0] / failures_file(name)) or {"flags": {}}
        flags = {flag: {*one["lines"]} for flag, one in failures["flags"].items()}
        rows = sentence_rows(comparison, flags)
    return values | {"comparison": comparison.to_json(), "sentences": rows}


def _compared(
    folders: Sequence[Path], configs: Sequence[RunConfig], name: str, notes: list[str]
) -> comparing.Comparison:
    run = configs[0]
    split, *rest = [run_split(config.data, name) for config in configs]
    text = read_texts(split, given_path(run.data.cache))
    if any(read_texts(other) != text for other in rest):
        raise InputError(f"{name} is not the same text for all runs")
    systems = []
    for folder in folders:
        lines = (folder / f"{name}.hyp").read_text(encoding="utf-8").split("\n")[:-1]
        if len(lines) != len(text.sources):
            raise InputError(f"{folder / name}.hyp has {len(lines)} of {len(text.sources)} lines")
        systems.append(comparing.System(str(folder), lines))
    # As ``compare`` has them, but for fewer trials and more sentences.
    keys = ComparisonKeys(
        scores=[one for one in run.metrics.tested if one not in ("custom", "comet")],
        randomization=1000,
        moved=100,
    )
    training = None
    try:
        pairs = run_split(run.data, "train", training=True)
        training = [str(target) for _, target in islice(pairs, _TRAINING_PAIRS)]
    except (InputError, OSError) as error:
        notes.append(f"no words by frequency: {error}")
    compared = comparing.ComparedText(name, text.sources, text.references)
    return comparing.compare_systems(compared, systems, keys, run.metrics, training)
