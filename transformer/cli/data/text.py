"""``text``: the splits of a corpus as plain files."""

import sys
from collections.abc import Sequence

from transformer.commands.text import text
from transformer.settings.corpora import TextConfig


def run(config: TextConfig, _: Sequence[str]) -> None:
    """Write the text, and show how many pairs each split has."""
    for name, split in text(config).items():
        print(f"{name}: {split.pairs:,} pairs", file=sys.stderr)
