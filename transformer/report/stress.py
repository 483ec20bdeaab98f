"""The report of a stress test: a table for people, ``stress.json`` for programs."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from transformer.evaluation.stress import StressReport
from transformer.report.scores import build_table, write_whole

FILE = "stress.json"

_SHOWN_FLAGS = 3


def stress_table(name: str, report: StressReport) -> Text:
    """A line for each disturbance: score, loss, outputs and the most frequent flags."""
    columns = ("disturbance", "inputs", report.metric, "loss", "same output", "chrF to clean")
    rows: list[Sequence[str]] = [("none", str(report.sentences), f"{report.clean:.2f}", *[""] * 4)]
    for one in report.disturbances:
        numbers = (one.score, one.loss, one.unchanged, one.agreement)
        flags = sorted(one.failures.items(), key=lambda item: -item[1])[:_SHOWN_FLAGS]
        shown = ", ".join(f"{flag} {count}" for flag, count in flags if count)
        cells = ("-" if number is None else f"{number:.2f}" for number in numbers)
        rows.append((one.name, str(one.inputs), *cells, shown))
    title = f"{name} disturbed, {report.signature}"
    return build_table(title, (*columns, "flags"), rows, right=range(1, 6))


def save_stress(folder: Path | None, report: StressReport) -> None:
    """Write ``stress.json`` to a folder; None writes nothing."""
    if folder is not None:
        write_whole(folder / FILE, json.dumps(report.to_json(), indent=1) + "\n")
