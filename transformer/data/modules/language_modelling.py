"""The target side of a corpus alone, for a task that reads one language.

Every sentence stands on both sides, so that filters, batches and counts see nothing else. It does
not know what is learnt from the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from transformer.data.config import DataConfig, check_not_streaming
from transformer.data.corpora.mixture import AnySplit
from transformer.data.corpora.resolve import Split, find_splits
from transformer.data.encoded.length_check import check_training_lengths
from transformer.data.modules.translation import DataModule
from transformer.data.text.parallel import Pair, is_plain
from transformer.data.tokenization.tokenizer import Tokenizer, TokenizerConfig


@dataclass(frozen=True)
class TargetSplit(Split):
    """The targets of a split, each as both sides."""

    def __iter__(self) -> Iterator[Pair]:
        """Yield (target, target); raises InputError as `Corpus` does."""
        return ((target, target) for _, target in super().__iter__())


class MonolingualData(DataModule):
    """Batches of the target side of a corpus; ``data.source`` matters only to find it."""

    def __init__(
        self,
        data: DataConfig,
        tokenizer: TokenizerConfig,
        *,
        initial_tokenizer: Tokenizer | None = None,
        positions: int | None = None,
    ) -> None:
        """Set out what to load; nothing is read yet.

        Args:
            data: the corpus and its batches.
            tokenizer: how to learn the vocabulary.
            initial_tokenizer: used in place of one learnt from the corpus (a checkpoint's own).
            positions: that the model has for a sentence and its bos; None: as many as need be.

        Raises:
            InputError: the text is to be streamed.
        """
        check_not_streaming(data, "language_modelling")
        super().__init__(data, tokenizer, initial_tokenizer=initial_tokenizer)
        self._positions = positions

    def prepare_data(self) -> None:
        """Do as `DataModule` does, and refuse what the model could not be evaluated on.

        Raises:
            InputError: text cannot be read, or does not suit vocabulary or model.
        """
        super().prepare_data()
        if self._positions is None:
            return
        for name in self.splits:
            rows = self.tokenizer.encode_target(self.texts(name)[1])
            check_training_lengths(
                map(len, rows), self._positions, partial(_line, self._part(name))
            )

    @cached_property
    def _splits(self) -> dict[str, AnySplit]:
        found = find_splits(_found(self._data))
        views = {
            name: _target_language(split)
            for name, split in found.items()
            if isinstance(split, Split)
        }
        held_out = [view for view in views.values() if not view.inverted]
        return {**views, "train": _without(views["train"], held_out)}


def _target_language(split: Split) -> TargetSplit:
    """Look at the target alone: the file, the JSONL key, or the second column of a TSV."""
    corpus, paths = split.corpus, split.corpus.paths
    corpus = replace(corpus, paths=paths[-1:] * len(paths), source=corpus.target)
    return TargetSplit(corpus, split.lines, split.inverted)


def _without(train: TargetSplit, held_out: Sequence[TargetSplit]) -> TargetSplit:
    """Leave out what is held out, beside whatever source it stands again."""
    if not held_out:
        return train
    texts = {target for split in held_out for _, target in split}
    whole = replace(train, lines=frozenset())
    again = frozenset(line for line, (_, target) in enumerate(whole) if target in texts)
    return replace(train, lines=train.lines | again)


def _line(split: Split, location: int) -> str:
    """Say where a text of a split stands: file and line."""
    line = location if split.inverted else sorted(split.lines)[location]
    return f"{split.corpus.paths[0]}:{line + 1}"


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
