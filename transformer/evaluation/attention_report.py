"""What people are shown of an attention view besides the page: the heads to look at first.

It does not know the page.
"""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from transformer.evaluation.attention_view import AttentionView
from transformer.evaluation.heads import best_heads


def print_best(view: AttentionView, console: Console | None = None) -> None:
    """Show the sentence pair and the best heads, on stderr unless a console is given."""
    table = Table(title=f"heads over {view.measured}", title_justify="left")
    for column in ("attention", "best at", "head", "measured"):
        table.add_column(column)
    for kind in view.kinds:
        for named in best_heads(kind.characters):
            table.add_row(kind.name, named.title, f"{named.layer}.{named.head}", named.text)
    console = console or Console(stderr=True)
    # Text: what stands in brackets is no markup.
    console.print(Text(f"{view.source}\n{view.target}"))
    console.print(table)
