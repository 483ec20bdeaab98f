"""``attention``: the weights of every head in one sentence pair, as a page and as numbers."""

from collections.abc import Sequence

from transformer.cli.threads import set_threads
from transformer.commands.attention import attention
from transformer.reports.heads import print_best
from transformer.settings.commands import AttentionConfig


def run(config: AttentionConfig, _: Sequence[str]) -> None:
    """Show the best heads, and print the paths of the files."""
    view, files = attention(config, loaded=set_threads)
    print_best(view)
    for file in files:
        print(file)
