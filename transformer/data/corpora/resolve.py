"""From a DataConfig to the text of each split: built in, downloaded, or the user's own.

Finds the text of each split; does not read it before it is iterated over.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from transformer.common.cache import locked
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.config import DataConfig, check_unused_keys
from transformer.data.corpora.catalog import PUBLISHED
from transformer.data.corpora.download import fetch, find
from transformer.data.corpora.folder import as_files
from transformer.data.corpora.holdout import hold_out
from transformer.data.corpora.mixture import AnySplit, mixed_splits
from transformer.data.corpora.split import Split as Split
from transformer.data.text.parallel import Corpus, rereadable
from transformer.data.tokenization.tags import SourceTags


def find_splits(config: DataConfig) -> dict[str, AnySplit]:
    """Return "train", "validation" and the other evaluation splits by name.

    With several corpora, "train" and "validation" join those of all, and each corpus has its own
    ("train_NAME", "validation_NAME", "test_NAME"). Downloads a corpus that is not in the cache.

    Raises:
        InputError: a corpus is unknown, or lacks something that the config asks for.
    """
    splits: dict[str, AnySplit] = {}
    if config.corpora is None:
        splits |= find_corpus_splits(config)
    else:
        splits |= mixed_splits(config, find_corpus_splits)
    if "validation" not in splits:
        raise InputError(
            "training needs a validation text; set data.validation=[SOURCE,TARGET], "
            "or data.validation_size=N to hold N pairs out (not of a stream)"
        )
    return splits


def find_corpus_splits(config: DataConfig) -> dict[str, Split]:
    """Return the splits of a single corpus as `find_splits` does; it may lack a validation text.

    Raises:
        InputError: the corpus is unknown, lacks something that the config asks for, or does not
            read a text that the config names.
    """
    makers: dict[str, Callable[[DataConfig], dict[str, Split]]] = {
        "pocket": _pocket,
        **dict.fromkeys(PUBLISHED, _published),
        "files": _files,
        "folder": lambda config: _files(as_files(config)),
    }
    if config.corpus not in makers:
        raise InputError(f"data.corpus={config.corpus} is unknown; set {', '.join(makers)}")
    check_unused_keys(config)
    if config.source == config.target:
        raise InputError(f"data.source and data.target are both {config.source!r}; set two")
    tags = SourceTags(config.target if config.target_tag else None)
    return {
        name: replace(split, tags=tags, sentences=config.documents or 1)
        for name, split in makers[config.corpus](config).items()
    }


def _pocket(config: DataConfig) -> dict[str, Split]:
    from transformer.data.corpora.pocket import pocket_splits

    return pocket_splits(config.source, config.target)


def _published(config: DataConfig) -> dict[str, Split]:
    published = PUBLISHED[config.corpus]

    def path(language: str, split: str) -> Path:
        if config.root is not None:
            return find(published, language, split, given_path(config.root))
        cache = given_path(config.cache)
        with locked(cache):
            return fetch(published, language, split, cache / published.name)

    return {
        split: Split(
            Corpus(
                (path(config.source, split), path(config.target, split)),
                *(config.source, config.target),
                max_line=config.max_line,
            ),
            links=_links_of_training(config) if split == "train" else None,
        )
        for split in published.splits
    }


def _files(config: DataConfig) -> dict[str, Split]:
    if config.train is None:
        raise InputError(
            "data=files needs the training text; set data.train=[SOURCE,TARGET], "
            "or data.train=FILE.tsv or FILE.jsonl"
        )
    given = {"train": config.train, "validation": config.validation, "test": config.test}
    if config.streaming:
        del given["train"]  # streaming/shards.py finds it
    splits: dict[str, Split] = {}
    for name, paths in given.items():
        if paths is not None:
            corpus = Corpus.of(
                *(paths, config.source, config.target, config.document_key, config.max_line)
            )
            links = _links_of_training(config) if name == "train" else None
            splits[name] = Split(rereadable(corpus), links=links)
    sizes = {"validation": config.validation_size, "test": config.test_size}
    missing = {name: size for name, size in sizes.items() if name not in splits and size > 0}
    if config.streaming or not missing:
        return splits
    if (config.documents or 1) > 1:
        raise InputError(
            "pairs cannot be held out of documents; give whole documents as data.validation and "
            "data.test, or set data.validation_size=0 or data.test_size=0"
        )
    return splits | hold_out(splits["train"], missing, given_path(config.cache))


def _links_of_training(config: DataConfig) -> Path | None:
    return None if config.alignment is None else given_path(config.alignment)
