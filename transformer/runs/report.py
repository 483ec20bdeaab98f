"""The report of a run: all that its directory says, as plain values, and as a page.

Written at the end of each run, also of one that was stopped; ``transformer report`` writes it again.
"""

import csv
import json
import logging
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.common.errors import InputError
from transformer.common.escaping import escaped, escaped_json
from transformer.common.files import given_path
from transformer.data.corpora.evaluation_text import Texts, read_texts
from transformer.evaluation.comparison.significance import Resampling
from transformer.evaluation.run_text import run_split
from transformer.report.page.page import report_page
from transformer.report.page.summary import summary
from transformer.report.page.text import by_frequency, by_length, intervals, sentences
from transformer.report.scores import write_whole
from transformer.runs.config_file import read_config
from transformer.runs.record import read_record, record_end, record_start
from transformer.tasks.registry import task_class
from transformer.training.checkpointing.run_directory import is_finished, is_locked
from transformer.training.config import RunConfig, plain_values, run_config
from transformer.training.trainer import end_reason

logger = logging.getLogger(__name__)

REPORT = "report"
"""Name of both files, without ``.html`` and ``.json``."""

RESAMPLING = Resampling(bootstrap=1000, randomisation=1000, seed=12345)

_TRAINING_PAIRS = 30_000
"""Pairs whose words are counted; more would take longer than the rest of a report."""

_CURVES = {"train/loss", "lr", "train/tokens_per_second", "train/grad_norm"}

_UNKNOWN = dict.fromkeys(("sentences", "by_length", "by_frequency", "failures"))

Values = dict[str, Any]


class RunReport(Callback):
    """Records a run, and writes its report where the block ends, or at each validation."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self.config, self.folder = config, folder
        self.changed, self.reason = False, ""
        """Whether there is something new to report; why training has ended, if it has begun."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the start."""
        if trainer.is_global_zero:
            record_start(self.folder, trainer)
            self.changed, self.reason = True, "unknown"

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the report of ``report=live``."""
        if self.config.report == "live" and trainer.is_global_zero:
            self._write(state="training")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember why training has ended."""
        self.reason = self.reason and end_reason(trainer, self.config)[1]

    def __enter__(self) -> "RunReport":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.reason:
            with suppress(OSError, InputError):
                record_end(self.folder, self.reason if error is None else str(error) or repr(error))
        if self.changed and self.config.report != "none":
            self._write(state=None if error is None else "stopped")

    def _write(self, state: str | None) -> None:
        try:
            write_report(self.folder, run_report(self.folder, state))
        except Exception as error:  # The run matters more than its report.
            again = f"transformer report {self.folder} writes it"
            bug = not isinstance(error, InputError | OSError)
            logger.warning("%s.html is not written: %s; %s", REPORT, error, again, exc_info=bug)


def write_report(folder: Path, values: Values) -> Path:
    """Write ``report.html`` and ``report.json`` into a folder; returns the page."""
    write_whole(folder / f"{REPORT}.json", escaped_json(values) + "\n")
    write_whole(page := folder / f"{REPORT}.html", report_page(values))
    return page


def run_report(folder: Path, state: str | None = None) -> Values:
    """All that a run directory says; its config must be trusted, as its text is read.

    ``state`` is finished, stopped or training; None finds out. Raises InputError without a config.
    """
    config = read_config(folder)
    if config is None:
        raise InputError(f"{folder} has no config.yaml that can be read; give a run directory")
    typed = run_config(config)
    record, notes = read_record(folder), list[str]()
    if state is None:
        running = "training" if is_locked(folder) else "stopped"
        state = "finished" if is_finished(folder) else running
    about = {"name": folder.resolve().name, "folder": str(folder), "task": typed.task}
    curves = _curves(folder)
    values = {
        **{**about, "state": state, "report": typed.report},
        "languages": [typed.data.source, typed.data.target],
        "validation": _validation(typed, curves),
        "curves": curves,
        "data": {key: record.get(key) for key in ("parameters", "vocabulary", "lengths")}
        | {"corpus": typed.data.corpus, **_log(folder)},
        "tests": [_test(folder, name, typed, config, notes) for name in _tested(folder)],
        "stress": _json(folder / "stress.json"),
        "settings": _settings(config, plain_values(RunConfig())),
        "seeds": {"seed": typed.seed, "data.seed": typed.data.seed},
        "starts": record["starts"],
    }
    return values | {"notes": list(dict.fromkeys(notes)), "summary": summary(values)}


def _curves(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Points (update, value) of ``metrics.csv``; a value that is not finite is left out."""
    found: dict[str, list[tuple[float, float]]] = {}
    with suppress(OSError), open(folder / "metrics.csv", encoding="utf-8", errors="replace") as file:
        for row in csv.DictReader(file):
            with suppress(KeyError, TypeError, ValueError):
                update = int(row["step"]) + 1
                for name, cell in row.items():
                    if cell and (name in _CURVES or name.startswith("val/")):
                        if math.isfinite(value := float(cell)):
                            found.setdefault(name, []).append((update, value))
    return found


def _validation(config: RunConfig, curves: Mapping[str, Any]) -> Values | None:
    """The validation that chose the best checkpoint; of equal ones the lowest loss, then the first."""
    criterion = task_class(config.task).criterion(config)
    points = curves.get(criterion.metric)
    if not points:
        return None
    sign, losses = -1 if criterion.mode == "max" else 1, dict(curves.get("val/loss", ()))
    best, value = min(points, key=lambda one: (sign * one[1], losses.get(one[0], math.inf)))
    ends = {"first": points[0][1], "last": points[-1][1], "last_update": points[-1][0]}
    lowest = min(losses, key=losses.__getitem__, default=None)
    return {"metric": criterion.metric, "mode": criterion.mode, "best": value, "best_update": best} | {
        **ends,
        "lowest_loss_update": lowest,
        "validations": len(points),
    }


def _log(folder: Path) -> Values:
    """What ``train.log`` says of the text: pairs kept, faults found; and other warnings."""
    try:
        text = (folder / "train.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = [line.partition(" ")[2] for line in text.splitlines()]
    doctor = [one for one in lines if "; transformer doctor shows more" in one]
    kept = [one for one in lines if re.match(r"[\w-]+: [\d,]+ of [\d,]+ \w+ kept", one)]
    warnings = [one for one in lines if one.startswith("warning: ") and one not in doctor]
    found = {"doctor": doctor, "kept": kept, "warnings": warnings}
    return {key: [escaped(one) for one in dict.fromkeys(own)] for key, own in found.items()}


def _tested(folder: Path) -> list[str]:
    """Names of the texts with scores, the test first."""
    names = [file.stem for file in folder.glob("*.json") if _scores(file) is not None]
    return sorted(names, key=lambda name: (name != "test", not name.startswith("test"), name))


def _scores(file: Path) -> list[Values] | None:
    """The scores in a file of ``evaluate`` or a test; None for any other file."""
    found = _json(file)
    are = isinstance(found, list) and found and all(
        isinstance(one, dict) and {"name", "score", "signature"} <= one.keys() for one in found
    )
    return found if are else None


def _test(
    folder: Path, name: str, config: RunConfig, plain: Mapping[str, Any], notes: list[str]
) -> Values:
    """Scores on a text; with intervals, buckets and sentences, if hypotheses and text are there."""
    values: Values = {"name": name, "scores": _scores(folder / f"{name}.json"), **_UNKNOWN}
    try:
        hypotheses = (folder / f"{name}.hyp").read_text(encoding="utf-8").split("\n")[:-1]
        text = read_texts(run_split(plain["data"], name), given_path(config.data.cache))
    except (InputError, OSError) as error:
        if isinstance(error, InputError):
            notes.append(f"{name}: no intervals and sentences without its text: {error}")
        return values
    if len(hypotheses) != len(text.sources):
        notes.append(f"{name}: {len(hypotheses)} hypotheses for {len(text.sources)} sentences")
        return values
    texts = text.sources, hypotheses, text.references
    found = intervals(*texts, config.metrics, RESAMPLING)
    for score in values["scores"]:
        resampled = found.get(score["name"])
        if resampled and abs(resampled.pop("value") - score["score"]) > 0.02:
            notes.append(f"{name}: the text no longer gives {score['name']} {score['score']}")
        elif resampled:
            score |= {key: one if isinstance(one, str) else round(one, 2) for key, one in resampled.items()}
    failures = _json(folder / "failures.json") if name == "test" else None
    flags = {flag: one["lines"] for flag, one in (failures or {"flags": {}})["flags"].items()}
    return values | {
        "sentences": sentences(*texts, config.metrics, flags),
        "by_length": by_length(*texts, config.metrics),
        "by_frequency": _frequencies(hypotheses, text, config, plain, notes),
        "failures": failures,
    }


def _frequencies(
    hypotheses: list[str], text: Texts, config: RunConfig, plain: Mapping[str, Any], notes: list[str]
) -> Values | None:
    try:
        split = run_split(plain["data"], "train", training=True)
    except InputError as error:
        notes.append(f"no words by frequency without the training text: {error}")
        return None
    targets = (str(target) for _, target in islice(split, _TRAINING_PAIRS))
    rows = by_frequency(hypotheses, text.references, targets, config.metrics)
    return {"pairs": _TRAINING_PAIRS, "rows": rows}


def _settings(config: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = "") -> list[Values]:
    """Keys whose values differ from the defaults."""
    found: list[Values] = []
    for key, value in config.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            found += _settings(value, default, f"{prefix}{key}.")
        elif value != default and key not in ("checkpoint", "resolved"):
            found.append({"key": f"{prefix}{key}", "value": value, "default": default})
    return found


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
