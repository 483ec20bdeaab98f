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
def counted(what: str) -> Iterator[Callable[..., None]]:
    """Yield a function that is told how many are done, of how many, and what else to show.

    Nothing is shown before its first call.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        last = time.monotonic()
        shown = 0

        def log(done: int, total: int, note: str = "") -> None:
            nonlocal last, shown
            if done != shown and (time.monotonic() - last >= EVERY or done == total):
                last = time.monotonic()
                shown = done
                remark = f" ({note})" if note else ""
                print(f"{what}: {done:,} of {total:,}{remark}", file=sys.stderr, flush=True)

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
    bar = Progress(*columns, console=console, expand=True)
    with ExitStack() as stack:

        def update(done: int, total: int, note: str = "") -> None:
            if not bar.tasks:
                bar.add_task(what, total=total, note="")
                stack.enter_context(bar)
            bar.update(bar.tasks[0].id, completed=done, note=note)

        yield update
