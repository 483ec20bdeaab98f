"""The target side of a corpus, as source and as target, for a task of one language."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from transformer.data.corpora.resolve import AnySplit, find_splits
from transformer.data.corpora.split import NumberedPair, Split, numbered
from transformer.data.datamodules.translation import TranslationData
from transformer.data.text.parallel import Pair, file_format
from transformer.settings.data import DataConfig


@dataclass(frozen=True)
class TargetSplit(Split):
    """The targets of a split, as source and target."""

    def __iter__(self) -> Iterator[Pair]:
        return ((target, target) for _, target in super().__iter__())


class MonolingualData(TranslationData):
    """Batches of the target side of a corpus; ``data.source`` only helps to find it."""

    def prepare_data(self) -> None:
        super().prepare_data()
        if self._positions is None:
            return
        for name in self.splits:
            pairs = list(numbered(self._part(name)))
            lengths = map(len, self.tokenizer.encode_target([pair.target for pair in pairs]))
            self._check_positions(lengths, partial(_line, self._part(name).location, pairs))

    @cached_property
    def _splits(self) -> dict[str, AnySplit]:
        splits = {
            name: _target_side(split)
            for name, split in find_splits(_two_sided(self._data)).items()
            if isinstance(split, Split)
        }
        if "train" in splits:
            held_out = [split for split in splits.values() if not split.inverted]
            splits["train"] = _without(splits["train"], held_out)
        return dict(splits)


def _target_side(split: Split) -> TargetSplit:
    """Return the target files, JSONL key, or second column of a TSV file."""
    paths = split.corpus.paths
    if len(paths) > 1:
        paths = (paths[1], *paths[1:])
    corpus = replace(split.corpus, paths=paths, source=split.corpus.target)
    return TargetSplit(corpus, split.lines, split.inverted)


def _without(train: TargetSplit, held_out: Sequence[TargetSplit]) -> TargetSplit:
    """Leave out held-out sentences, whatever their source is."""
    texts = {target for split in held_out for _, target in split}
    whole = replace(train, lines=frozenset())
    equal = frozenset(line for line, (_, target) in enumerate(whole) if target in texts)
    return replace(train, lines=train.lines | equal)


def _line(path: Path, pairs: Sequence[NumberedPair], index: int) -> str:
    return f"{path}:{pairs[index].line}"


def _two_sided(data: DataConfig) -> DataConfig:
    """Return a config with two sides, as `find_splits` expects, if only the target is given."""
    if data.corpus != "files":
        return data
    source = f"not {data.target}" if data.source == data.target else data.source
    files: dict[str, Any] = {}
    for name in ("train", "validation", "test"):
        paths = getattr(data, name)
        if isinstance(paths, str) and file_format(paths) == "plain":
            files[name] = (paths, paths)
        elif isinstance(paths, list | tuple) and len(paths) > 1:
            files[name] = (paths[1], *paths[1:])
    return replace(data, source=source, **files)
