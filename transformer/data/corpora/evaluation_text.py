"""The sentences of an evaluation split, line for line.

Knows splits and tags; does not know subwords.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from transformer.common.cache import remembered
from transformer.common.errors import InputError, MissingFile
from transformer.data.config import DataConfig
from transformer.data.corpora.mixture import AnySplit, JoinedSplit
from transformer.data.corpora.resolve import find_splits
from transformer.data.corpora.split import Split
from transformer.data.text.lines import is_large
from transformer.data.text.parallel import Pair
from transformer.data.tokenization.tags import with_tags


class Texts(NamedTuple):
    """An evaluation split, line for line."""

    sources: list[str]
    """Each with its tags."""
    references: list[str]
    ranges: dict[str, range]
    """The lines of each corpus, if there are several."""


def read_texts(split: AnySplit, cache: Path) -> Texts:
    """Read a split; the cache has the pairs held out of a large file; raises InputError as it."""
    ranges = {}
    if isinstance(split, JoinedSplit):
        parts = [_pairs(part, cache) for part in split.parts.values()]
        pairs = list(split.joined(parts))
        ranges = split.ranges([len(part) for part in parts])
    else:
        pairs = _pairs(split, cache)
    return Texts([source for source, _ in pairs], [target for _, target in pairs], ranges)


def _pairs(split: Split, cache: Path) -> list[Pair]:
    if split.inverted or not any(map(is_large, split.corpus.paths)):
        return list(split)
    question = f"held out: {split.fingerprint(cache)}"
    pairs = json.loads(remembered(cache, question, lambda: json.dumps(list(split))))
    return [(with_tags(source, split.tags), target) for source, target in pairs]


def validation_pairs(config: DataConfig, sentences: int | None) -> list[Pair]:
    """Return the first ``sentences`` pairs of the validation text, in order; None: all.

    Raises InputError as `find_splits`, or if there is no pair or the number is below 1.
    """
    if sentences is not None and sentences < 1:
        raise InputError(f"sentences={sentences} must be at least 1, or null")
    with named_by_run():
        split = find_splits(config)["validation"]
        if pairs := list(islice(split, sentences)):
            return pairs
    raise InputError(f"{split.location}: the validation text of the run is empty; fill it again")


@contextmanager
def named_by_run() -> Iterator[None]:
    """Add to a MissingFile that the config of the run names the file, not the command."""
    try:
        yield
    except MissingFile as error:
        raise MissingFile(
            f"{error}; the config of the run names it so: call it from the folder where the "
            "run was trained"
        ) from error
