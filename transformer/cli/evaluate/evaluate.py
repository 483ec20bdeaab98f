"""``evaluate``: score a checkpoint; a table on stderr, JSON as sacreBLEU's to a file or a pipe."""

import sys
from collections.abc import Sequence

from transformer.cli.evaluate.stress import stress_table
from transformer.cli.threads import set_threads
from transformer.commands.evaluate import Evaluated, evaluate
from transformer.common.escaping import escaped
from transformer.reports.scores import (
    failures_table,
    format_json,
    print_json,
    print_table,
    table_console,
)
from transformer.settings.evaluation import EvaluateConfig


def run(config: EvaluateConfig, _: Sequence[str]) -> None:
    """Score a model, as its task demands."""
    evaluated = evaluate(config, _show, loaded=set_threads)
    if evaluated.stress is not None:
        table_console().print(stress_table(evaluated.text, evaluated.stress))


def _show(evaluated: Evaluated) -> None:
    print(escaped(evaluated.model), file=sys.stderr)
    print_table(evaluated.text, evaluated.scores)
    if evaluated.failures is not None:
        table_console().print(failures_table(evaluated.failures))
    print_json(format_json(evaluated.scores))
