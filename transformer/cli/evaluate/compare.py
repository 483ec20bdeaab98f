"""``compare``: is a system better than another, how sure is that, and where do they differ?"""

import sys
from collections.abc import Sequence

from transformer.cli.threads import set_threads
from transformer.commands.compare import compare
from transformer.evaluation.comparison import Comparison
from transformer.reports.comparison import format_comparison, print_comparison
from transformer.reports.scores import print_json
from transformer.settings.evaluation import CompareConfig


def run(config: CompareConfig, _: Sequence[str]) -> None:
    """Show the comparison of systems, and print it as JSON."""
    compare(config, _show, loaded=set_threads)


def _show(event: str | Comparison) -> None:
    if isinstance(event, str):
        print(event, file=sys.stderr, flush=True)
        return
    print_comparison(event)
    print_json(format_comparison(event))
