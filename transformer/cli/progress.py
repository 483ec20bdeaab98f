"""How much of long work is done, on stderr: a bar on a terminal, else a line from time to time."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

EVERY = 30.0
"""Seconds between two lines where stderr is no terminal."""


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Yield a function that is told how many are done, and what else to show."""
    console = Console(stderr=True)
    if not console.is_terminal:
        last, shown = time.monotonic(), 0

        def log(done: int, note: str) -> None:
            nonlocal last, shown
            if done != shown and (time.monotonic() - last >= EVERY or done == total):
                last, shown = time.monotonic(), done
                more = f" ({note})" if note else ""
                print(f"{what}: {done:,} of {total:,}{more}", file=sys.stderr, flush=True)

        yield log
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        # What is left of a line: a narrow terminal cuts this column alone.
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
    )
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task(what, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)


@contextmanager
def counted_from_first(what: str) -> Iterator[Callable[..., None]]:
    """As `counted`, but its function is told the total, too, and shows nothing before."""
    with ExitStack() as stack:
        report: Callable[[int, str], None] | None = None

        def show(done: int, total: int, note: str = "") -> None:
            nonlocal report
            if report is None:
                report = stack.enter_context(counted(what, total))
            report(done, note)

        yield show
