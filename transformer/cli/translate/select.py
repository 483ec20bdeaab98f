"""``select``: of each n-best list the candidate that a reference or a reverse model chooses."""

from collections.abc import Sequence

from transformer.cli.threads import set_threads
from transformer.commands.select import select
from transformer.settings.evaluation import SelectConfig


def run(config: SelectConfig, _: Sequence[str]) -> None:
    """Select the candidates."""
    select(config, loaded=set_threads)
