"""``shortlist``: the target tokens that are searched for each source token."""

import sys
from collections.abc import Sequence

from transformer.commands.shortlist import shortlist
from transformer.settings.commands import ShortlistConfig


def run(config: ShortlistConfig, _: Sequence[str]) -> None:
    """Write the shortlist, and show its size."""
    written = shortlist(config)
    shown = f"{written.mean:,.0f} of {written.vocabulary:,} tokens for a sentence on average"
    print(f"{written.pairs:,} pairs, by {written.method}: {shown}", file=sys.stderr)
    print(written.file)
