"""The sentences of an evaluation split, line for line; it does not know subwords."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from transformer.common.errors import InputError, MissingFile, did_you_mean
from transformer.common.files import remembered
from transformer.data.corpora.resolve import AnySplit, JoinedSplit, find_splits
from transformer.data.corpora.split import Split
from transformer.data.text.lines import is_large
from transformer.data.text.parallel import AnotherTarget, Pair, Referenced
from transformer.data.tokenization.tags import with_tags
from transformer.settings.data import DataConfig


class Texts(NamedTuple):
    """An evaluation split, source for source."""

    sources: list[str]
    references: list[tuple[str, ...]]
    """References of each source, at least one."""
    ranges: dict[str, range]
    """The sources of each corpus, if there are several."""


def with_references(pairs: Iterable[Pair], repeated: bool = False) -> list[Referenced]:
    """Return each source with its targets, equal ones, too: annotators may agree.

    ``repeated`` merges the pairs of a source, except blanks; a pair that is there twice is one.
    """
    references: dict[object, tuple[str, list[str]]] = {}
    targets: list[str] = []
    for index, (source, target) in enumerate(pairs):
        if not (index and isinstance(target, AnotherTarget)):
            key = source if repeated and source else index
            targets = references.setdefault(key, (source, []))[1]
        if isinstance(target, AnotherTarget) or not (repeated and target in targets):
            targets.append(str(target))
    return [(source, tuple(targets)) for source, targets in references.values()]


def read_texts(split: AnySplit, cache: Path | None = None) -> Texts:
    """Read a split; the cache has the pairs held out of a large file; InputError if it is empty."""
    texts: list[Referenced] = []
    ranges: dict[str, range] = {}
    if isinstance(split, JoinedSplit):
        for name, part in split.parts.items():
            if ranges and split.has_documents:
                texts.append(("", ("",)))
            start = len(texts)
            texts += _texts(part, cache)
            ranges[name] = range(start, len(texts))
    else:
        texts = _texts(split, cache)
    if not texts:
        raise InputError(f"{split.location}: the text has no line; fill the file, or give another")
    return Texts([source for source, _ in texts], [targets for _, targets in texts], ranges)


def _texts(split: Split, cache: Path | None) -> list[Referenced]:
    if cache is None or split.inverted or not any(map(is_large, split.corpus.paths)):
        return with_references(split, split.repeated_sources)
    question = f"held out, all targets, {split.repeated_sources}: {split.fingerprint(cache)}"
    texts = remembered(
        cache, question, lambda: json.dumps(with_references(split, split.repeated_sources))
    )
    return [
        (with_tags(source, split.tags), tuple(targets)) for source, targets in json.loads(texts)
    ]


def validation_pairs(config: DataConfig, sentences: int | None) -> list[Referenced]:
    """Return the first ``sentences`` sources of the validation text with references; None: all."""
    if sentences is not None and sentences < 1:
        raise InputError(f"sentences={sentences} must be at least 1, or null")
    with named_by_run():
        sources, references, _ = read_texts(find_splits(config)["validation"])
    return list(zip(sources, references, strict=True))[:sentences]


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


def no_split(name: str, known: Sequence[str]) -> InputError:
    """The error for a split that a corpus does not have."""
    meant = did_you_mean(name, known)
    return InputError(f"there is no split={name}{meant}; choose {' or '.join(known)}")


def run_split(data: DataConfig, name: str, *, training: bool = False) -> AnySplit:
    """A split whose files exist; ``training`` allows the training text."""
    with named_by_run():
        splits = find_splits(data)
        known = [split for split in splits if training or not split.startswith("train")]
        if name not in known:
            raise no_split(name, known)
        next(iter(splits[name]), None)  # raises what is wrong with the files
        return splits[name]
