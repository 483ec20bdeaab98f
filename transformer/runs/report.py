"""The report of runs: the content of their directories, as plain values and as a page.

It imports no Lightning, whose import takes seconds.
"""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from transformer.checkpoint.run_directory import is_finished, is_locked, read_config
from transformer.common.errors import InputError
from transformer.common.escaping import escaped, escaped_json
from transformer.common.files import given_path, read_json, write_text_whole
from transformer.data.corpora.evaluation_text import read_texts, run_split
from transformer.evaluation import comparison as comparing
from transformer.reports.comparison import letters
from transformer.reports.page import REPORT
from transformer.reports.page.media import media_link
from transformer.reports.page.page import report_page
from transformer.reports.page.sentences import moved_rows, sentence_rows
from transformer.reports.page.summary import summary
from transformer.reports.scores import failures_file, read_scores
from transformer.runs.directory import read_record
from transformer.settings.evaluation import ComparisonKeys
from transformer.settings.run import RunConfig, plain_values
from transformer.tasks.registry import is_translation, task_class
from transformer.training.model_selection import best_by_text

_CURVES = {"train/loss", "lr", "train/tokens_per_second", "train/grad_norm"}

_TRAINING_PAIRS = 10_000
"""Pairs whose words are counted; more would take longer than the rest of a report."""

Values = dict[str, Any]


def write_report(folder: Path, values: Values) -> Path:
    """Write ``report.html`` and ``report.json``, for several runs ``comparison``; the page."""
    name = REPORT if len(values["runs"]) == 1 else "comparison"
    page = folder / f"{name}.html"
    if values["source_kind"] in ("speech", "image"):
        for row in chain.from_iterable(test["sentences"] for test in values["tests"]):
            row["media"] = media_link(row["source"], folder)
    write_text_whole(folder / f"{name}.json", escaped_json(values) + "\n")
    write_text_whole(page, report_page(values))
    return page


def run_report(folders: Sequence[Path], state: str | None = None) -> Values:
    """The values of the report of trusted run directories.

    ``state`` is that of a run that trains in this process; None reads it from the directory.
    """
    configs = [require_config(folder) for folder in folders]
    settings = [plain_values(config) for config in configs]
    if len(configs) == 1:
        settings.append(plain_values(RunConfig()))
    runs = zip(folders, configs, strict=True)
    values: Values = {
        "letters": letters(len(folders)),
        "source_kind": configs[0].data.source_kind,
        "runs": [_facts(folder, config, state) for folder, config in runs],
        "settings": _differing(settings),
    }
    scores = [read_scores(folder) for folder in folders]
    notes: list[str] = []
    values["tests"] = [
        tested_text(folders, configs, name, [run_scores[name] for run_scores in scores], notes)
        for name in scores[0]
        if all(name in run_scores for run_scores in scores)
    ]
    return values | {"notes": list(dict.fromkeys(notes)), "summary": summary(values)}


def require_config(folder: Path) -> RunConfig:
    """The config of a run directory; InputError if it has none."""
    config = read_config(folder)
    if config is None:
        raise InputError(f"{folder} has no config.yaml that can be read; give a run directory")
    return config


def _facts(folder: Path, run: RunConfig, state: str | None) -> Values:
    record = read_record(folder)
    curves = _curves(folder, fine_tuned=run.finetune_from is not None)
    direction = f", {run.data.source} to {run.data.target}" if is_translation(run.task) else ""
    if state is None and is_finished(folder):
        state = "finished"
    elif state is None:
        state = "training" if is_locked(folder) else "stopped"
    return {
        "name": folder.resolve().name,
        "folder": str(folder),
        "state": state,
        "live": run.report == "live",
        "about": f"{run.task}{direction}, corpus {run.data.corpus}",
        "validation": _validation(run, curves),
        "curves": curves,
        "parameters": record.get("parameters"),
        "vocabulary": record.get("vocabulary"),
        "lengths": record.get("lengths"),
        "starts": record.get("starts"),
        "one_vocabulary": run.tokenizer.one_vocabulary,
        "log": _log(folder),
        "failures": read_json(folder / failures_file(next(iter(read_scores(folder)), "test"))),
        "stress": read_json(folder / "stress.json"),
        "seeds": f"seed={run.seed} data.seed={run.data.seed}",
    }


def _curves(folder: Path, *, fine_tuned: bool) -> dict[str, list[tuple[int, float]]]:
    """Points (update, value) of ``metrics.csv``; a value that is not finite is left out."""
    curves: dict[str, list[tuple[int, float]]] = {}
    with suppress(OSError), open(folder / "metrics.csv", encoding="utf-8", errors="replace") as f:
        for number, row in enumerate(csv.DictReader(f)):
            with suppress(KeyError, TypeError, ValueError):
                update = int(row["step"]) + 1
                if fine_tuned and number == 0 and update == 1:
                    # The validation before the first update has step 0, too (ContinuedLogs).
                    update = 0
                for name, cell in row.items():
                    # A damaged row may have more cells than there are columns, under the key None.
                    if not name or not cell:
                        continue
                    is_curve = name in _CURVES or name.startswith("val/")
                    if is_curve and math.isfinite(float(cell)):
                        curves.setdefault(name, []).append((update, float(cell)))
    return curves


def _validation(config: RunConfig, curves: Mapping[str, Any]) -> Values | None:
    """The validation that chose the best checkpoint: of equal scores the lowest loss."""
    if config.task == "translation":  # its class would import Lightning
        selection = best_by_text(config.metrics)
    else:
        selection = task_class(config.task).model_selection(config)
    points = curves.get(selection.metric)
    if not points:
        return None
    losses = dict(curves.get("val/loss", ()))
    sign = -1 if selection.mode == "max" else 1
    best_update, best = min(
        points, key=lambda point: (sign * point[1], losses.get(point[0], math.inf))
    )
    return {
        "metric": selection.metric,
        "best": best,
        "best_update": best_update,
        "count": len(points),
        "last_update": points[-1][0],
        "lowest_loss_update": min(losses, key=losses.__getitem__, default=None),
    }


def _log(folder: Path) -> list[str]:
    """Lines of ``train.log`` on the text, such as faults that the doctor finds; and warnings."""
    try:
        text = (folder / "train.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    lines = dict.fromkeys(line.partition(" ")[2] for line in text.splitlines())
    wanted = re.compile(r"warning: |[\w-]+: [\d,]+ of [\d,]+ (\w+ kept|pairs: )")
    return [escaped(line) for line in lines if wanted.match(line)]


def _differing(configs: Sequence[Mapping[str, Any]], prefix: str = "") -> list[Values]:
    """The keys whose values differ, dotted, with the value of each config."""
    differing: list[Values] = []
    for key in dict.fromkeys(key for config in configs for key in config):
        values: list[Any] = [config.get(key) for config in configs]
        name = f"{prefix}{key}"
        if all(isinstance(value, Mapping) for value in values):
            differing += _differing(values, f"{name}.")
        elif any(value != values[0] for value in values) and name != "checkpoint":
            differing.append({"key": name, "values": values})
    return differing


def tested_text(
    folders: Sequence[Path],
    configs: Sequence[RunConfig],
    name: str,
    scores: Sequence[list[Values]],
    notes: list[str],
) -> Values:
    """Scores on a text; and intervals and sentences, if the text and the translations exist."""
    values: Values = {"name": name, "scores": scores, "comparison": None, "sentences": []}
    if not all(is_translation(config.task) for config in configs):
        return values
    try:
        comparison = _compared(folders, configs, name, notes)
    except (InputError, OSError) as error:
        notes.append(f"{name}: neither intervals nor sentences: {error}")
        return values
    for metric in comparison.metrics:
        for run_scores, system in zip(scores, metric.systems, strict=True):
            former = next((row for row in run_scores if row["name"] == metric.name), None)
            if former is not None and abs(former["score"] - system.score) > 0.01:
                change = f"was {former['score']}, and is now {system.score:.2f}"
                notes.append(f"{name}: {metric.name} {change}")
    files = configs[0].data.source_kind != "text"
    if len(folders) > 1:
        rows = moved_rows(comparison, files=files)
    else:
        failures = read_json(folders[0] / failures_file(name)) or {"flags": {}}
        lines = {flag: {*sentences["lines"]} for flag, sentences in failures["flags"].items()}
        rows = sentence_rows(comparison, lines, files=files)
    return values | {"comparison": comparison.to_json(), "sentences": rows}


def _compared(
    folders: Sequence[Path], configs: Sequence[RunConfig], name: str, notes: list[str]
) -> comparing.Comparison:
    run = configs[0]
    text = read_texts(run_split(run.data, name), given_path(run.data.cache))
    if any(read_texts(run_split(config.data, name)) != text for config in configs[1:]):
        raise InputError(f"{name} is not the same text for all runs")
    systems = []
    for folder in folders:
        # As text, a carriage return would end a line, too.
        lines = (folder / f"{name}.hyp").read_bytes().decode().split("\n")[:-1]
        if len(lines) != len(text.sources):
            raise InputError(f"{folder / name}.hyp has {len(lines)} of {len(text.sources)} lines")
        systems.append(comparing.System(str(folder), lines))
    # The defaults of ``compare``, with fewer trials and more sentences.
    keys = ComparisonKeys(
        scores=[metric for metric in run.metrics.tested if metric not in ("custom", "comet")],
        randomization=1000,
        moved=100,
    )
    training = None
    try:
        pairs = run_split(run.data, "train", training=True)
        training = [str(target) for _, target in islice(pairs, _TRAINING_PAIRS)]
    except (InputError, OSError) as error:
        notes.append(f"no words by frequency: {error}")
    features = run.data.features is not None
    compared = comparing.ComparedText(name, text.sources, text.references, features)
    return comparing.compare_systems(compared, systems, keys, run.metrics, training)
