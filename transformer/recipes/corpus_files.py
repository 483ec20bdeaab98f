"""The text of a recipe: the plain files that its first stage makes of the corpus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.corpora.catalog import PUBLISHED, find
from transformer.data.text.parallel import file_format
from transformer.settings.data import DataConfig

TEXT_KEYS = (
    *("corpus", "source", "target", "root", "train", "validation", "test", "validation_size"),
    *("test_size", "cache", "lang", "features", "repeated_sources", "max_line"),
)
"""Keys of ``data.`` that the verb ``text`` needs."""


@dataclass(frozen=True)
class CorpusFiles:
    """The splits of a corpus as plain files in a folder; source and target are language codes."""

    folder: Path
    source: str
    target: str
    splits: tuple[str, ...]
    """train, validation, and test if there is one."""

    def __getitem__(self, split: str) -> list[Path]:
        return [self.folder / f"{split}.{language}" for language in (self.source, self.target)]

    @property
    def swapped(self) -> "CorpusFiles":
        return replace(self, source=self.target, target=self.source)

    @property
    def as_corpus(self) -> dict[str, Any]:
        """Keys of one of several corpora: all splits."""
        untested = {} if "test" in self.splits else {"test_size": 0}
        return {split: self[split] for split in self.splits} | untested

    @property
    def alone(self) -> dict[str, Any]:
        """Keys of ``data.`` for a training run on this text alone."""
        return self._keys("test") | self.as_corpus

    def mixed(self, corpora: Mapping[str, Any]) -> dict[str, Any]:
        """Keys of ``data.`` for a training run on several corpora."""
        return {**self._keys("train", "validation", "test"), "corpora": corpora}

    def _keys(self, *unset: str) -> dict[str, Any]:
        languages = {"source": self.source, "target": self.target}
        return {"corpus": "files", **languages, **dict.fromkeys(unset)}


def only_train(train: Sequence[Path], tag: str | None) -> dict[str, Any]:
    """Keys of a corpus that neither validates nor tests."""
    keys = {"train": list(train), "validation_size": 0, "test_size": 0}
    return keys if tag is None else {**keys, "tag": tag}


def monolingual_file(name: str) -> Path:
    """A text of one language that the user names, a sentence a line."""
    if file_format(name) != "plain":
        raise InputError(
            f"monolingual={name} must be plain text, a sentence a line, which may be gzipped"
        )
    return given_path(name)


def corpus_splits(data: DataConfig) -> tuple[str, ...]:
    """The splits that the verb ``text`` writes."""
    tested = data.corpus != "files" or data.test is not None or data.test_size > 0
    return ("train", "validation", "test") if tested else ("train", "validation")


def corpus_paths(data: DataConfig) -> tuple[Path, ...]:
    """The user's files that a corpus is read from; none if it is pocket or downloaded."""
    if data.corpus == "files":
        named = [split or [] for split in (data.train, data.validation, data.test)]
        pairs = [[split] if isinstance(split, str) else split for split in named]
        return tuple(given_path(path) for pair in pairs for path in pair)
    published = PUBLISHED.get(data.corpus)
    if published is None or data.root is None:
        return ()
    root = given_path(data.root)
    sides = [data.lang] if published.format else [data.source, data.target]
    return tuple(find(published, code, split, root) for split in published.splits for code in sides)
