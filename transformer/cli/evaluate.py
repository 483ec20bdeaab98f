"""``evaluate``, ``compare``, ``stress``, ``report``, ``attention`` and ``heads``.

Tables go to stderr, and JSON to a file or a pipe on stdout. Each command imports its library
function when it runs: no other command takes time for it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from transformer.settings.commands import AttentionConfig, HeadsConfig, ReportConfig
from transformer.settings.evaluation import CompareConfig, EvaluateConfig, StressConfig

if TYPE_CHECKING:
    from rich.text import Text

    from transformer.commands.evaluate import Evaluated
    from transformer.commands.heads import Progress
    from transformer.evaluation.comparison import Comparison
    from transformer.quality.stress import StressReport


def run_evaluate(config: EvaluateConfig, _: Sequence[str]) -> None:
    """Score a model, as its task demands."""
    from transformer.cli.threads import set_threads
    from transformer.commands.evaluate import evaluate
    from transformer.reports.scores import table_console

    evaluated = evaluate(config, _show_scores, loaded=set_threads)
    if evaluated.stress is not None:
        table_console().print(stress_table(evaluated.text, evaluated.stress))


def _show_scores(evaluated: "Evaluated") -> None:
    from transformer.common.escaping import escaped
    from transformer.reports.scores import (
        failures_table,
        format_json,
        print_json,
        print_table,
        table_console,
    )

    print(escaped(evaluated.model), file=sys.stderr)
    print_table(evaluated.text, evaluated.scores)
    if evaluated.failures is not None:
        table_console().print(failures_table(evaluated.failures))
    print_json(format_json(evaluated.scores))


def run_compare(config: CompareConfig, _: Sequence[str]) -> None:
    """Show the comparison of systems, and print it as JSON."""
    from transformer.cli.threads import set_threads
    from transformer.commands.compare import compare

    compare(config, _show_comparison, loaded=set_threads)


def _show_comparison(event: "str | Comparison") -> None:
    from transformer.reports.comparison import format_comparison, print_comparison
    from transformer.reports.scores import print_json

    if isinstance(event, str):
        print(event, file=sys.stderr, flush=True)
        return
    print_comparison(event)
    print_json(format_comparison(event))


def run_stress(config: StressConfig, _: Sequence[str]) -> None:
    """Show progress, and print a table of the scores with each disturbance."""
    from transformer.cli.threads import set_threads
    from transformer.commands.scored_text import text_name
    from transformer.commands.stress import stress

    stress(config, partial(_show_stress, text_name(config)), loaded=set_threads)


def _show_stress(name: str, event: "str | StressReport") -> None:
    from rich.console import Console

    if isinstance(event, str):
        print(f"stress: {event}", file=sys.stderr, flush=True)
    else:
        Console(width=10_000, soft_wrap=True).print(stress_table(name, event))


def stress_table(name: str, report: "StressReport") -> "Text":
    """A line for each disturbance: score, loss, outputs and the most frequent flags."""
    from transformer.reports.scores import build_table

    columns = (
        "disturbance",
        "inputs",
        report.metric,
        "loss",
        "same output",
        "chrF to clean",
        "flags",
    )
    clean_flags = _most_frequent(report.clean_failures)
    rows = [("none", str(report.sentences), f"{report.clean:.2f}", "", "", "", clean_flags)]
    for result in report.disturbances:
        rows.append(
            (
                result.name,
                str(result.inputs),
                _two_digits(result.score),
                _two_digits(result.loss),
                _two_digits(result.unchanged),
                _two_digits(result.agreement),
                _most_frequent(result.failures),
            )
        )
    title = f"{name} disturbed, {report.signature}"
    return build_table(title, columns, rows, right=range(1, 6))


def _two_digits(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def _most_frequent(failures: Mapping[str, int]) -> str:
    flags = sorted(failures.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{flag} {count}" for flag, count in flags if count)


def run_report(config: ReportConfig, _: Sequence[str]) -> None:
    """Write the page of a run, of several side by side, or the model card; print its path."""
    from transformer.commands.report import report

    print(report(config))


def run_attention(config: AttentionConfig, _: Sequence[str]) -> None:
    """Show the best heads in one sentence pair, and print the paths of the page and the numbers."""
    from transformer.cli.threads import set_threads
    from transformer.commands.attention import attention
    from transformer.reports.heads import print_best

    view, files = attention(config, loaded=set_threads)
    print_best(view)
    for file in files:
        print(file)


def run_heads(config: HeadsConfig, _: Sequence[str]) -> None:
    """Rank the heads; a progress bar on a terminal, then tables; print all as JSON."""
    import rich.progress
    from rich.console import Console

    from transformer.cli.threads import set_threads
    from transformer.commands.heads import heads
    from transformer.reports.scores import print_json

    console = Console(stderr=True)
    disable = not console.is_terminal
    with rich.progress.Progress(console=console, transient=True, disable=disable) as bar:
        task = bar.add_task("scoring")

        def show(progress: "Progress") -> None:
            text = f"scoring {progress.text}"
            bar.update(task, completed=progress.done, total=progress.total, description=text)

        report = heads(config, show, loaded=set_threads)
    report.print_tables()
    print_json(json.dumps(report.to_json(), indent=1))
