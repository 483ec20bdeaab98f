"""The table of a tagger's errors."""

from rich.text import Text

from transformer.evaluation.tagging_accuracy import Tagging
from transformer.report.scores import build_table


def confusion_table(tagging: Tagging) -> Text:
    """A row for each right tag of a tagger and a column for each tag that was given."""
    header, title = ["", *tagging.tags], "right tag, then the tags given"
    rows = (
        [gold, *(str(tagging.confusion[gold, given] or ".") for given in tagging.tags)]
        for gold in tagging.tags
    )
    return build_table(title, header, rows, right=range(len(header)))
