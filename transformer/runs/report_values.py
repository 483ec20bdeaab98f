"""The report of runs: all that their directories say, as plain values and as a page."""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformer.checkpoint.config_file import read_config
from transformer.common.errors import InputError
from transformer.common.escaping import escaped, escaped_json
from transformer.common.files import read_json, write_text_whole
from transformer.reports.comparison import letters
from transformer.reports.page import REPORT
from transformer.reports.page.page import report_page
from transformer.reports.page.summary import summary
from transformer.reports.scores import failures_file, read_scores
from transformer.runs.run_json import read_record
from transformer.runs.tested_texts import tested_text
from transformer.settings.run import RunConfig, plain_values
from transformer.tasks.registry import is_translation, task_class
from transformer.training.checkpointing.run_directory import is_finished, is_locked
from transformer.training.model_selection import best_by_text

_CURVES = {"train/loss", "lr", "train/tokens_per_second", "train/grad_norm"}

Values = dict[str, Any]


def write_report(folder: Path, values: Values) -> Path:
    """Write ``report.html`` and ``report.json``, for several runs ``comparison``; the page."""
    name = REPORT if len(values["runs"]) == 1 else "comparison"
    write_text_whole(folder / f"{name}.json", escaped_json(values) + "\n")
    write_text_whole(page := folder / f"{name}.html", report_page(values))
    return page


def run_report(folders: Sequence[Path], state: str | None = None) -> Values:
    """All that trusted run directories say; ``state`` None finds out whether one is finished."""
    configs, notes = [require_config(folder) for folder in folders], list[str]()
    pairs = zip(folders, configs, strict=True)
    defaults = [plain_values(RunConfig())] if len(configs) == 1 else []
    values: Values = {
        "letters": letters(len(folders)),
        "runs": [_facts(folder, config, state) for folder, config in pairs],
        "settings": _differing([*map(plain_values, configs), *defaults]),
    }
    first, *rest = scores = [read_scores(folder) for folder in folders]
    values["tests"] = [
        tested_text(folders, configs, name, [one[name] for one in scores], notes)
        for name in first
        if all(name in scored for scored in rest)
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
    curves = _curves(folder)
    direction = f", {run.data.source} to {run.data.target}" if is_translation(run.task) else ""
    if state is None:
        running = "training" if is_locked(folder) else "stopped"
        state = "finished" if is_finished(folder) else running
    return {
        "name": folder.resolve().name,
        "folder": str(folder),
        "state": state,
        "live": run.report == "live",
        "about": f"{run.task}{direction}, corpus {run.data.corpus}",
        "validation": _validation(run, curves),
        "curves": curves,
        **{key: record.get(key) for key in ("parameters", "vocabulary", "lengths", "starts")},
        "one_vocabulary": run.tokenizer.one_vocabulary,
        "log": _log(folder),
        "failures": read_json(folder / failures_file(next(iter(read_scores(folder)), "test"))),
        "stress": read_json(folder / "stress.json"),
        "seeds": f"seed={run.seed} data.seed={run.data.seed}",
    }


def _curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Points (update, value) of ``metrics.csv``; a value that is not finite is left out."""
    found: dict[str, list[tuple[int, float]]] = {}
    with suppress(OSError), open(folder / "metrics.csv", encoding="utf-8", errors="replace") as f:
        for row in csv.DictReader(f):
            with suppress(KeyError, TypeError, ValueError):
                update = int(row["step"]) + 1
                for name, cell in row.items():
                    # A damaged row may have more cells than there are columns, under the key None.
                    known = name and cell and (name in _CURVES or name.startswith("val/"))
                    if known and math.isfinite(value := float(cell)):
                        found.setdefault(name, []).append((update, value))
    return found


def _validation(config: RunConfig, curves: Mapping[str, Any]) -> Values | None:
    """The validation that chose the best checkpoint: of equal scores the lowest loss."""
    light = config.task == "translation"  # its class would import Lightning
    task = None if light else task_class(config.task)
    selection = task.model_selection(config) if task else best_by_text(config.metrics)
    if not (points := curves.get(selection.metric)):
        return None
    sign, losses = -1 if selection.mode == "max" else 1, dict(curves.get("val/loss", ()))
    best, value = min(points, key=lambda one: (sign * one[1], losses.get(one[0], math.inf)))
    found = {"metric": selection.metric, "best": value, "best_update": best, "count": len(points)}
    lowest = min(losses, key=losses.__getitem__, default=None)
    return {**found, "last_update": points[-1][0], "lowest_loss_update": lowest}


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
    found: list[Values] = []
    for key in dict.fromkeys(key for config in configs for key in config):
        values: list[Any] = [config.get(key) for config in configs]
        name = f"{prefix}{key}"
        if all(isinstance(value, Mapping) for value in values):
            found += _differing(values, f"{name}.")
        elif any(value != values[0] for value in values) and name != "checkpoint":
            found.append({"key": name, "values": values})
    return found
