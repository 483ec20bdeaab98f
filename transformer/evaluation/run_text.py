"""The text that a run names in its config: its validation and test sets."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer.data.corpora.mixture import AnySplit


def run_splits(data: Mapping[str, Any]) -> "Mapping[str, AnySplit]":
    """The text of a run, where its config says that it is.

    Raises:
        InputError: It is not there.
    """
    from transformer.common.schema import typed
    from transformer.data.config import DataConfig
    from transformer.data.corpora.evaluation_text import named_by_run
    from transformer.data.corpora.resolve import find_splits

    with named_by_run():
        return find_splits(typed(DataConfig, data, "data"))


def found_in_run(split: "AnySplit") -> "AnySplit":
    """The split, whose files a run's config names, if they are there.

    Raises:
        InputError: They are not.
    """
    from transformer.data.corpora.evaluation_text import named_by_run

    with named_by_run():
        next(iter(split), None)
    return split
