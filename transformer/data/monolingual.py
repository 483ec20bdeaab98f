"""The target side of a corpus alone, for a task that reads one language.

Every sentence stands on both sides, so that filters, batches and counts see nothing else. It does
not know what is learnt from the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from transformer.data.config import DataConfig
from transformer.data.corpus import Pair, is_plain
from transformer.data.datamodule import DataModule
from transformer.data.splits import Split, find_splits


@dataclass(frozen=True)
class TargetSplit(Split):
    """The targets of a split, each as both sides."""

    def __iter__(self) -> Iterator[Pair]:
        """Yield (target, target); raises InputError as `Corpus` does."""
        return ((target, target) for _, target in super().__iter__())


class MonolingualData(DataModule):
    """Batches of the target side of a corpus; ``data.source`` matters only to find it."""

    @cached_property
    def _splits(self) -> dict[str, Split]:
        return {name: _target_of(split) for name, split in find_splits(_found(self._data)).items()}


def _target_of(split: Split) -> TargetSplit:
    """Look at the target alone: the file, the JSONL key, or the second column of a TSV."""
    corpus, paths = split.corpus, split.corpus.paths
    corpus = replace(corpus, paths=paths[-1:] * len(paths), source=corpus.target)
    return TargetSplit(corpus, split.lines, split.inverted)


def _found(data: DataConfig) -> DataConfig:
    """Give `find_splits` two sides, where one was given."""
    if data.corpus != "files":
        return data
    if data.source == data.target:
        data = replace(data, source=f"not {data.target}")
    return replace(
        data,
        train=_target_twice(data.train),
        validation=_target_twice(data.validation),
        test=_target_twice(data.test),
    )


def _target_twice(given: str | Sequence[str] | None) -> str | Sequence[str] | None:
    if isinstance(given, str):
        return (given, given) if is_plain(given) else given
    return given if given is None or len(given) != 2 else (given[1], given[1])
