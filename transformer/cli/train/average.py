"""``average``: one checkpoint with the mean weights of a run's newest."""

import sys
from collections.abc import Sequence

from transformer.commands.average import average
from transformer.settings.commands import AverageConfig


def run(config: AverageConfig, _: Sequence[str]) -> None:
    """Write the mean weights, and print the path."""
    file, averaged = average(config)
    for path in averaged:
        print(f"averaged {path}", file=sys.stderr)
    print(file)
