"""The summary of an attention view on a terminal: the heads to look at first."""

from rich.console import Console

from transformer.evaluation.attention.head_metrics import best_heads
from transformer.evaluation.attention.view import AttentionView
from transformer.report.scores import build_table, shown


def print_best(view: AttentionView, console: Console | None = None) -> None:
    """Show the sentence pair and the best heads, on stderr unless a console is given."""
    rows = [
        (kind.name, named.title, f"{named.layer}.{named.head}", named.text)
        for kind in view.kinds
        for named in best_heads(kind.characters)
    ]
    console = console or Console(stderr=True)
    for text in (view.source, view.target):
        console.print(shown(text))
    header = ("attention", "best at", "head", "measured")
    console.print(build_table(f"heads over {view.measured}", header, rows, right=()))
