"""The validation and test sets in the config of a run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer.data.corpora.mixture import AnySplit


def run_splits(data: Mapping[str, Any]) -> "Mapping[str, AnySplit]":
    """The splits of a run's corpus.

    Raises:
        InputError: The corpus is missing.
    """
    from transformer.common.schema import typed
    from transformer.data.config import DataConfig
    from transformer.data.corpora.evaluation_text import named_by_run
    from transformer.data.corpora.resolve import find_splits

    with named_by_run():
        return find_splits(typed(DataConfig, data, "data"))


def found_in_run(split: "AnySplit") -> "AnySplit":
    """Check that the files of a split exist, and return it.

    Raises:
        InputError: They are missing.
    """
    from transformer.data.corpora.evaluation_text import named_by_run

    with named_by_run():
        next(iter(split), None)
    return split
