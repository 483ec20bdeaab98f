"""The sentences of an evaluation split, line for line.

Knows splits and tags; does not know subwords.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from transformer.common.cache import remembered
from transformer.common.errors import InputError, MissingFile
from transformer.data.config import DataConfig
from transformer.data.corpora.mixture import AnySplit, JoinedSplit
from transformer.data.corpora.resolve import find_splits
from transformer.data.corpora.split import Split
from transformer.data.text.lines import is_large
from transformer.data.text.parallel import AnotherTarget, Pair, Referenced, pairs_of
from transformer.data.tokenization.tags import with_tags


class Texts(NamedTuple):
    """An evaluation split, source for source."""

    sources: list[str]
    """Each with its tags."""
    references: list[tuple[str, ...]]
    """Of each source, one at least."""
    ranges: dict[str, range]
    """The sources of each corpus, if there are several."""


def with_references(pairs: Iterable[Pair]) -> list[Referenced]:
    """Return each source with all its targets: an `AnotherTarget` is of the source before it."""
    found: list[tuple[str, list[str]]] = []
    for source, target in pairs:
        if found and isinstance(target, AnotherTarget) and source == found[-1][0]:
            found[-1][1].append(str(target))
        else:
            found.append((source, [str(target)]))
    return [(source, tuple(targets)) for source, targets in found]


def read_texts(split: AnySplit, cache: Path) -> Texts:
    """Read a split; the cache has the pairs held out of a large file; raises InputError as it."""
    ranges = {}
    if isinstance(split, JoinedSplit):
        parts = [_texts(part, cache) for part in split.parts.values()]
        texts = with_references(split.joined(map(_pairs, parts)))
        ranges = split.ranges([len(part) for part in parts])
    else:
        texts = _texts(split, cache)
    return Texts([source for source, _ in texts], [targets for _, targets in texts], ranges)


def _texts(split: Split, cache: Path) -> list[Referenced]:
    if split.inverted or not any(map(is_large, split.corpus.paths)):
        return with_references(split)
    question = f"held out with references: {split.fingerprint(cache)}"
    texts = json.loads(remembered(cache, question, lambda: json.dumps(with_references(split))))
    return [(with_tags(source, split.tags), tuple(targets)) for source, targets in texts]


def _pairs(texts: Iterable[Referenced]) -> Iterator[Pair]:
    return (pair for source, targets in texts for pair in pairs_of(source, targets))


def validation_pairs(config: DataConfig, sentences: int | None) -> list[Referenced]:
    """Return the first ``sentences`` sources of the validation text with their references.

    ``None`` is all of them.

    Raises InputError as `find_splits`, or if there is no pair or the number is below 1.
    """
    if sentences is not None and sentences < 1:
        raise InputError(f"sentences={sentences} must be at least 1, or null")
    with named_by_run():
        split = find_splits(config)["validation"]
        if texts := with_references(split)[:sentences]:
            return texts
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
