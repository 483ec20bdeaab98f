"""``stress``: score a translator on a disturbed test set; a table, and ``stress.json``."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial

from rich.console import Console
from rich.text import Text

from transformer.cli.threads import set_threads
from transformer.commands.scored_text import text_name
from transformer.commands.stress import stress
from transformer.quality.stress import StressReport
from transformer.reports.scores import build_table
from transformer.settings.evaluation import StressConfig


def run(config: StressConfig, _: Sequence[str]) -> None:
    """Show progress, and print the table."""
    stress(config, partial(_show, text_name(config)), loaded=set_threads)


def _show(name: str, event: str | StressReport) -> None:
    if isinstance(event, str):
        print(f"stress: {event}", file=sys.stderr, flush=True)
    else:
        Console(width=10_000, soft_wrap=True).print(stress_table(name, event))


def stress_table(name: str, report: StressReport) -> Text:
    """A line for each disturbance: score, loss, outputs and the most frequent flags."""
    columns = ("disturbance", "inputs", report.metric, "loss", "same output", "chrF to clean")
    clean = ("none", str(report.sentences), f"{report.clean:.2f}", *[""] * 3)
    rows: list[Sequence[str]] = [(*clean, _most_frequent(report.clean_failures))]
    for one in report.disturbances:
        numbers = (one.score, one.loss, one.unchanged, one.agreement)
        cells = ("-" if number is None else f"{number:.2f}" for number in numbers)
        rows.append((one.name, str(one.inputs), *cells, _most_frequent(one.failures)))
    title = f"{name} disturbed, {report.signature}"
    return build_table(title, (*columns, "flags"), rows, right=range(1, 6))


def _most_frequent(failures: Mapping[str, int]) -> str:
    flags = sorted(failures.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{flag} {count}" for flag, count in flags if count)
