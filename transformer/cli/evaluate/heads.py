"""``heads``: what every head is worth, by the cost of switching it off."""

import json
from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress

from transformer.cli.threads import set_threads
from transformer.commands import heads
from transformer.reports.scores import print_json
from transformer.settings.commands import HeadsConfig


def run(config: HeadsConfig, _: Sequence[str]) -> None:
    """Show a progress bar on a terminal, then tables; print all as JSON."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("scoring")

        def show(progress: heads.Progress) -> None:
            text = f"scoring {progress.text}"
            bar.update(task, completed=progress.done, total=progress.total, description=text)

        report = heads.heads(config, show, loaded=set_threads)
    report.print_tables()
    print_json(json.dumps(report.to_json(), indent=1))
