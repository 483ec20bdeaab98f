"""From a DataConfig to the text of each split: built in, downloaded, or the user's own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError, MissingFile
from transformer.common.files import given_path, locked
from transformer.data.corpora.catalog import PUBLISHED, fetch, find
from transformer.data.corpora.holdout import hold_out
from transformer.data.corpora.mixture import AnySplit, mixed_splits
from transformer.data.corpora.pocket import pocket_splits
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import Corpus
from transformer.data.tokenization.tags import SourceTags
from transformer.settings.data import DataConfig, check_unused_keys

FOLDER_NAMES = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
"""Stems of the files of each split; the language follows, and optionally ``.gz``."""

NO_TRAINING_TEXT = (
    "data=files needs the training text; set data.train=[SOURCE,TARGET], or data.train=FILE.tsv or "
    "FILE.jsonl (a run that was imported: import it again with validation=[SOURCE,TARGET])"
)


def find_splits(config: DataConfig) -> dict[str, AnySplit]:
    """Return the splits by name; of several corpora also "train_NAME" and so on for each."""
    one = config.corpora is None
    splits: Mapping[str, AnySplit] = (
        find_corpus_splits(config) if one else mixed_splits(config, find_corpus_splits)
    )
    if "validation" not in splits:
        raise InputError(
            "training needs a validation text; set data.validation=[SOURCE,TARGET], or "
            "data.validation_size=N to hold N pairs out (not of a stream, nor of documents)"
        )
    return dict(splits)


def find_corpus_splits(config: DataConfig) -> dict[str, Split]:
    """Return the splits of a single corpus as `find_splits` does; it may lack a validation text."""
    makers: dict[str, Callable[[DataConfig], dict[str, Split]]] = {
        "pocket": lambda config: pocket_splits(config.source, config.target),
        **dict.fromkeys(PUBLISHED, _published),
        "files": _files,
        "folder": lambda config: _files(as_files(config)),
    }
    if config.corpus not in makers:
        raise InputError(f"data.corpus={config.corpus} is unknown; set {', '.join(makers)}")
    check_unused_keys(config)
    if config.source == config.target:
        raise InputError(f"data.source and data.target are both {config.source!r}; set two")
    tags = SourceTags(
        config.target if config.target_tag else None,
        source=config.source if config.target_tag == "both" else None,
    )
    splits = {
        name: replace(
            split,
            corpus=replace(split.corpus, features=config.features is not None),
            tags=tags,
            sentences=config.documents or 1,
            repeated_sources=config.repeated_sources,
        )
        for name, split in makers[config.corpus](config).items()
    }
    if config.alignment is not None and "train" in splits:
        splits["train"] = replace(splits["train"], links=given_path(config.alignment))
    sizes = {"validation": config.validation_size, "test": config.test_size}
    missing = {name: size for name, size in sizes.items() if name not in splits and size > 0}
    if "train" not in splits or not missing or (config.documents or 1) > 1:
        return splits
    return splits | hold_out(splits["train"], missing, given_path(config.cache))


def _published(config: DataConfig) -> dict[str, Split]:
    published = PUBLISHED[config.corpus]

    def path(language: str | None, split: str) -> Path:
        if config.root is not None:
            return find(published, language, split, given_path(config.root))
        cache = given_path(config.cache)
        with locked(cache):
            return fetch(published, language, split, cache / published.name)

    sides = (config.source, config.target)
    return {
        split: Split(
            Corpus(
                tuple(path(name, split) for name in ([config.lang] if published.format else sides)),
                *sides,
                max_line=config.max_line,
                format=published.format,
            )
        )
        for split in published.splits
    }


def _files(config: DataConfig) -> dict[str, Split]:
    # The text of a model that was imported is for validation alone.
    if config.train is None and config.validation is None:
        raise InputError(NO_TRAINING_TEXT)
    given = {"train": config.train, "validation": config.validation, "test": config.test}
    if config.streaming:
        del given["train"]  # streaming/shards.py finds it
    splits: dict[str, Split] = {}
    for name, paths in given.items():
        if paths is not None:
            corpus = Corpus.of(
                *(paths, config.source, config.target, config.document_key, config.max_line)
            )
            for pipe in filter(Path.is_fifo, corpus.paths):
                raise InputError(f"{pipe}: a pipe cannot be read twice; give a file")
            splits[name] = Split(corpus)
    return splits


def as_files(config: DataConfig) -> DataConfig:
    """Return a config of ``data.corpus=folder`` as one of ``files``, with the paths found."""
    check_unused_keys(config)
    root = given_path(config.root or "")
    if config.root is None or not root.is_dir():
        raise MissingFile(
            f"data.root={config.root or 'null'} is no folder (seen from {Path.cwd()}); data=folder "
            "needs one: set data.root=FOLDER"
        )
    files: dict[str, Any] = {}
    for split, names in FOLDER_NAMES.items():
        codes = (config.source, config.target)
        stems = {code: [f"{name}.{code}" for name in names] for code in codes}
        candidates = [[root / f"{s}{gz}" for s in stems[c] for gz in ("", ".gz")] for c in codes]
        sides = [[str(path) for path in paths if path.is_file()] for paths in candidates]
        counts = [len(paths) for paths in sides]
        if counts != [1, 1] and (split == "train" or counts != [0, 0]):
            found = " and ".join(Path(path).name for paths in sides for path in paths)
            raise InputError(
                f"{root} has {found or 'nothing'} for {split}; it needs one {split}.{codes[0]} and "
                f"one {split}.{codes[1]} (or .gz): set data.source and data.target to the "
                "languages that the file names end in"
            )
        files[split] = tuple(paths[0] for paths in sides if paths) or None
    return replace(config, corpus="files", root=None, **files)
