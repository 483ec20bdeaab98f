"""The text of an evaluation split, line for line.

Knows splits and tags; does not know pieces.
"""

import json
from pathlib import Path
from typing import NamedTuple

from transformer.common.cache import remembered
from transformer.data.corpus import Pair
from transformer.data.lines import is_large
from transformer.data.mixture import AnySplit, JoinedSplit
from transformer.data.split import Split
from transformer.data.tags import with_tags


class Texts(NamedTuple):
    """An evaluation split, line for line."""

    sources: list[str]
    """Each with its tags."""
    references: list[str]
    ranges: dict[str, range]
    """Of several corpora, which lines are of which."""


def read_texts(split: AnySplit, cache: Path) -> Texts:
    """Read a whole split.

    Args:
        split: of one corpus or of several.
        cache: remembers the few pairs that are held out of a large file.

    Raises:
        InputError: the text cannot be read.
    """
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
