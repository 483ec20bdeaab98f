"""Texts on which runs were tested: scores, intervals, buckets and sentences, as plain values."""

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.corpora.evaluation_text import read_texts
from transformer.evaluation.comparison import compare as comparing
from transformer.evaluation.comparison.significance import Resampling
from transformer.evaluation.run_text import run_split
from transformer.report.page.sentences import moved_rows, sentence_rows
from transformer.training.config import run_config

_TRAINING_PAIRS = 30_000
"""Pairs whose words are counted; more would take longer than the rest of a report."""

_COMPARED: dict[str, Any] = {
    "resampling": Resampling(bootstrap=1000, randomisation=1000, seed=12345),
    "lengths": (6, 11, 16, 21, 31, 51),
    "frequencies": (1, 2, 5, 10, 100, 1000),
    "moved": 100,
    "moved_by": None,
}
"""As ``compare`` has them, but for fewer trials and more sentences."""

Values = dict[str, Any]


def tested_texts(folders: Sequence[Path]) -> list[str]:
    """Names of the texts for which each run has scores, the test first."""
    found = [
        {f.stem for f in folder.glob("*.json") if _is_scores(read_json(f))} for folder in folders
    ]
    return sorted(set.intersection(*found), key=lambda n: (n != "test", "test" not in n, n))


def _is_scores(values: Any) -> bool:
    """Whether values are the scores of a test or of ``evaluate``."""
    keys = {"name", "score", "signature"}
    plain = isinstance(values, list) and all(isinstance(one, dict) for one in values)
    return plain and bool(values) and all(keys <= one.keys() for one in values)


def tested_text(
    folders: Sequence[Path], configs: Sequence[Values], name: str, notes: list[str]
) -> Values:
    """Scores on a text; with intervals, buckets and sentences, if hypotheses and text are there."""
    scores = [read_json(folder / f"{name}.json") for folder in folders]
    values: Values = {"name": name, "scores": scores, "comparison": None, "sentences": []}
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
        file = "failures.json" if name == "test" else f"{name}.failures.json"
        failures = read_json(folders[0] / file)
        flags = {flag: one["lines"] for flag, one in (failures or {"flags": {}})["flags"].items()}
        rows = sentence_rows(comparison, flags)
    return values | {"comparison": comparison.to_json(), "sentences": rows}


def _compared(
    folders: Sequence[Path], configs: Sequence[Values], name: str, notes: list[str]
) -> comparing.Comparison:
    runs = [run_config(config) for config in configs]
    split, *further = [run_split(config["data"], name) for config in configs]
    text = read_texts(split, given_path(runs[0].data.cache))
    if any(read_texts(other) != text for other in further):
        raise InputError(f"{name} is not the same text for all runs")
    systems = []
    for folder in folders:
        lines = (folder / f"{name}.hyp").read_text(encoding="utf-8").split("\n")[:-1]
        if len(lines) != len(text.sources):
            raise InputError(f"{folder / name}.hyp has {len(lines)} of {len(text.sources)} lines")
        systems.append(comparing.System(str(folder), lines))
    metrics = runs[0].metrics
    names = [one for one in metrics.tested if one not in ("custom", "comet")]
    config = comparing.ComparisonConfig(scores=names, scoring=metrics, **_COMPARED)
    training = None
    try:
        pairs = run_split(configs[0]["data"], "train", training=True)
        training = (str(target) for _, target in islice(pairs, _TRAINING_PAIRS))
    except InputError as error:
        notes.append(f"no words by frequency: {error}")
    compared = comparing.ComparedText(name, text.sources, text.references)
    return comparing.compare(compared, systems, config, training)


def read_json(file: Path) -> Any:
    """The values of a file; None without one that can be read."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
