"""The splits of the corpus that the config of a run names."""

from collections.abc import Mapping
from typing import Any

from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.data.config import DataConfig
from transformer.data.corpora.evaluation_text import named_by_run
from transformer.data.corpora.mixture import AnySplit
from transformer.data.corpora.resolve import find_splits


def run_split(data: Mapping[str, Any], name: str, *, training: bool = False) -> AnySplit:
    """A split whose files exist; ``training`` allows the training text."""
    with named_by_run():
        splits = find_splits(typed(DataConfig, data, "data"))
        known = [one for one in splits if training or not one.startswith("train")]
        if name not in known:
            raise InputError(f"split={name} is not there; choose {' or '.join(known)}")
        next(iter(splits[name]), None)  # raises what is wrong with the files
        return splits[name]
