"""``ask``: how much is done goes to stderr; the files and their sizes to stdout."""

from collections.abc import Sequence

from transformer.cli.progress import counted
from transformer.cli.threads import set_threads
from transformer.commands.ask import ask
from transformer.recipes.remote_teacher import counts
from transformer.settings.commands import AskConfig


def run(config: AskConfig, _: Sequence[str]) -> None:
    """Ask for each line."""
    with counted("asked for different lines") as show:
        asked = ask(config, show=show, loaded=set_threads)
    sizes = ", ".join(f"{file} {count:,} lines" for file, count in asked.lines.items())
    print(f"{sizes}; answers: {counts(asked.answers.values())}")
