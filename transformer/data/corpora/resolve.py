"""From a DataConfig to the text of each split: built in, published by others, or the user's own.

Knows where text lies; does not know pieces or batches. Nothing is read before it is asked for.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from transformer.common.cache import locked
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.config import DataConfig
from transformer.data.corpora.catalog import PUBLISHED
from transformer.data.corpora.download import fetch, find
from transformer.data.corpora.folder import as_files
from transformer.data.corpora.holdout import hold_out
from transformer.data.corpora.mixture import AnySplit, mixed_splits
from transformer.data.corpora.pocket import pocket_splits
from transformer.data.corpora.split import Split as Split
from transformer.data.corpora.unused_keys import check_unused_keys
from transformer.data.text.parallel import Corpus, read_again_and_again
from transformer.data.tokenization.tags import SourceTags


def find_splits(config: DataConfig) -> dict[str, AnySplit]:
    """Return "train", "validation" and what else there is to evaluate on, by name.

    Of several corpora, "train" and "validation" are all of theirs, and each has its own
    ("train_NAME", "validation_NAME", "test_NAME"). Fetches a corpus if need be.

    Raises:
        InputError: a corpus is unknown, or lacks what the config asks of it.
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
    """Return what `find_splits` does of a config without several corpora.

    There need be no validation text.

    Raises:
        InputError: the corpus is unknown, lacks what the config asks of it, or would not read it.
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
    if config.alignment is not None:
        raise InputError(
            "the pocket corpus has links of its own; leave data.alignment out, or give your text "
            "with data=files"
        )
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
                config.source,
                config.target,
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
        del given["train"]  # shards.py finds it
    splits = {
        name: Split(
            read_again_and_again(
                Corpus.of(
                    *(paths, config.source, config.target, config.document_key, config.max_line)
                )
            ),
            links=_links_of_training(config) if name == "train" else None,
        )
        for name, paths in given.items()
        if paths is not None
    }
    if config.streaming:
        return splits
    sizes = {"validation": config.validation_size, "test": config.test_size}
    missing = {name: size for name, size in sizes.items() if name not in splits and size > 0}
    if missing and config.documents is not None and config.documents > 1:
        raise InputError(
            "single pairs held out would tear documents apart; give whole ones as data.validation "
            "and data.test, or set data.validation_size=0 or data.test_size=0"
        )
    if not missing:
        return splits
    if config.held_out_by != "content":
        raise InputError(
            "an older version drew the pairs that this run held out, which cannot be told from its "
            "training text any more; score texts with transformer evaluate source=FILE "
            "reference=FILE, and train in a new run"
        )
    return splits | hold_out(splits["train"], missing, given_path(config.cache))


def _links_of_training(config: DataConfig) -> Path | None:
    return None if config.alignment is None else given_path(config.alignment)
