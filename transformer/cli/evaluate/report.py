"""``report``: one page of a run, of several runs side by side, or the model card."""

from collections.abc import Sequence

from transformer.commands.report import report
from transformer.settings.commands import ReportConfig


def run(config: ReportConfig, _: Sequence[str]) -> None:
    """Write the page or the card, and print its path."""
    print(report(config))
