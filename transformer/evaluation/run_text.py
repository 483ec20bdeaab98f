"""The validation and test sets in the config of a run."""

from collections.abc import Mapping
from typing import Any

from transformer.common.schema import typed
from transformer.data.config import DataConfig
from transformer.data.corpora.evaluation_text import named_by_run
from transformer.data.corpora.mixture import AnySplit
from transformer.data.corpora.resolve import find_splits


def run_splits(data: Mapping[str, Any]) -> Mapping[str, AnySplit]:
    """The splits of a run's corpus; raises InputError if it is missing."""
    with named_by_run():
        return find_splits(typed(DataConfig, data, "data"))


def found_in_run(split: AnySplit) -> AnySplit:
    """Return a split whose files exist; raises InputError if they are missing."""
    with named_by_run():
        next(iter(split), None)
    return split
