"""``consolidate``: one file of a checkpoint whose weights lie in several."""

from collections.abc import Sequence

from transformer.commands.consolidate import consolidate
from transformer.settings.commands import ConsolidateConfig


def run(config: ConsolidateConfig, _: Sequence[str]) -> None:
    """Write the file, and print its path."""
    print(consolidate(config))
