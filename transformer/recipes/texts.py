"""The text of a recipe: which files the corpus becomes, and how the verb ``text`` is told so.

It does not read them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transformer.common.files import given_path
from transformer.data.config import DataConfig
from transformer.data.corpora.catalog import PUBLISHED
from transformer.data.corpora.download import find
from transformer.data.corpora.folder import as_files
from transformer.recipes.overrides import override

_OF_TEXT = (
    *("corpus", "source", "target", "root", "train", "validation", "test", "validation_size"),
    *("test_size", "seed", "cache"),
)
"""Keys of ``data.`` that decide what the text is, or did in older versions (``seed``), and where
derived files are kept."""


class Sides(NamedTuple):
    """Two files, line by line translations of each other."""

    source: Path
    target: Path

    @property
    def swapped(self) -> "Sides":
        """For the other direction."""
        return Sides(self.target, self.source)


@dataclass(frozen=True)
class Texts:
    """The splits of a corpus as plain files."""

    source: str
    """Language code."""
    target: str
    splits: Mapping[str, Sides]
    """train, validation, and test if there is one."""

    @classmethod
    def in_folder(cls, folder: Path, data: Mapping[str, Any]) -> "Texts":
        """As the verb ``text`` writes them for these keys of ``data.``."""
        source, target = data["source"], data["target"]
        own = data["corpus"] == "files"
        tested = not own or data["test"] is not None or data["test_size"] > 0
        names = ("train", "validation", "test") if tested else ("train", "validation")
        return cls(
            source,
            target,
            {
                name: Sides(folder / f"{name}.{source}", folder / f"{name}.{target}")
                for name in names
            },
        )

    @property
    def files(self) -> list[Path]:
        """All of them."""
        return [path for sides in self.splits.values() for path in sides]

    @property
    def train(self) -> Sides:
        """To learn from."""
        return self.splits["train"]

    @property
    def validation(self) -> Sides:
        """To choose by."""
        return self.splits["validation"]

    @property
    def swapped(self) -> "Texts":
        """The other direction."""
        return Texts(
            self.target,
            self.source,
            {name: sides.swapped for name, sides in self.splits.items()},
        )

    @property
    def languages(self) -> dict[str, Any]:
        """Keys of ``data.``: files, and of which languages."""
        return {"corpus": "files", "source": self.source, "target": self.target}

    @property
    def evaluated(self) -> dict[str, Any]:
        """Keys of a corpus: what validates and tests."""
        if "test" in self.splits:
            return {"validation": list(self.validation), "test": list(self.splits["test"])}
        return {"validation": list(self.validation), "test_size": 0}

    @property
    def alone(self) -> dict[str, Any]:
        """Keys of ``data.`` for a training on this text alone."""
        tested = self.evaluated | ({} if "test" in self.splits else {"test": None})
        return self.languages | {"train": list(self.train)} | tested


def mixed(languages: Mapping[str, Any], corpora: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of ``data.`` for a training on several corpora."""
    none = {"train": None, "validation": None, "test": None}
    return {**languages, **none, "corpora": corpora}


def only_to_learn_from(train: Sequence[Path]) -> dict[str, Any]:
    """Keys of a corpus that neither validates nor tests."""
    return {"train": list(train), "validation_size": 0, "test_size": 0}


def text_settings(data: Mapping[str, Any], default: Mapping[str, Any]) -> list[str]:
    """Arguments of the verb ``text`` that make it write this corpus."""
    return [override(f"data.{key}", data[key]) for key in _OF_TEXT if data[key] != default.get(key)]


def by_name(data: Mapping[str, Any], config: DataConfig) -> Mapping[str, Any]:
    """Keys of ``data.`` that name the files which a folder holds; others stay as they are.

    Raises:
        InputError: The folder does not hold what it should.
    """
    if config.corpus != "folder":
        return data
    found = as_files(config)
    named = {split: getattr(found, split) for split in ("train", "validation", "test")}
    paths = {split: paths and list(paths) for split, paths in named.items()}
    return {**data, **paths, "corpus": found.corpus, "root": found.root}


def files_of_corpus(data: Mapping[str, Any]) -> list[Path]:
    """The user's files that a corpus is read from; none of one that is made, or fetched.

    Raises:
        InputError: The folder that the user names has no such corpus.
    """
    if data["corpus"] == "files":
        named = [data[key] for key in ("train", "validation", "test")]
        paths = [[one] if isinstance(one, str) else one for one in named if one is not None]
        return [given_path(path) for pair in paths for path in pair]
    published = PUBLISHED.get(data["corpus"])
    if published is None or data["root"] is None:
        return []
    root = given_path(data["root"])
    sides = (data["source"], data["target"])
    return [find(published, code, split, root) for split in published.splits for code in sides]


def paths_in(data: Any) -> list[Path]:
    """All paths in the keys of ``data.``."""
    if isinstance(data, Path):
        return [data]
    if isinstance(data, Mapping):
        return [path for one in data.values() for path in paths_in(one)]
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [path for one in data for path in paths_in(one)]
    return []


def read_by_evaluation(config: Mapping[str, Any]) -> list[Path]:
    """Files of the user's beside the text."""
    named = (config["terms"], config["alignment"])
    return [given_path(name) for name in named if isinstance(name, str)]
