"""From a DataConfig to the text of each split: made, published by others, or the user's own.

Knows where text lies; does not know pieces or batches. Nothing is read before it is asked for.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from transformer.common.cache import locked
from transformer.common.errors import InputError
from transformer.common.files import given_path, written_whole
from transformer.data.config import DataConfig
from transformer.data.corpora.catalog import PUBLISHED
from transformer.data.corpora.download import fetch, find
from transformer.data.corpora.folder import as_files
from transformer.data.corpora.holdout import hold_out
from transformer.data.corpora.mixture import AnySplit, mixed_splits
from transformer.data.corpora.split import Split as Split
from transformer.data.corpora.unused_keys import refuse_idle_keys
from transformer.data.text.conllu import format_conllu
from transformer.data.text.parallel import Corpus, read_again_and_again
from transformer.data.text.word_alignment import format_links
from transformer.data.tokenization.tags import SourceTags

POCKET_SPLITS = ("train", "validation", "test", "test_novel")
# The corpus is one and the same for every run; data.seed only orders its batches.
_POCKET_SEED = 1

logger = logging.getLogger(__name__)


def find_splits(config: DataConfig) -> dict[str, AnySplit]:
    """Return "train", "validation" and what else there is to evaluate on, by name.

    Of several corpora, "train" and "validation" are all of theirs, and each has its own
    ("train_NAME", "validation_NAME", "test_NAME"). Makes or fetches a corpus if need be.

    Raises:
        InputError: a corpus is unknown, or lacks what the config asks of it.
    """
    splits: dict[str, AnySplit] = {}
    if config.corpora is None:
        splits |= splits_of_one(config)
    else:
        splits |= mixed_splits(config, splits_of_one)
    if "validation" not in splits:
        raise InputError(
            "training needs a validation text; set data.validation=[SOURCE,TARGET], "
            "or data.validation_size=N to hold N pairs out (not of a stream)"
        )
    return splits


def splits_of_one(config: DataConfig) -> dict[str, Split]:
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
    refuse_idle_keys(config)
    if config.source == config.target:
        raise InputError(f"data.source and data.target are both {config.source!r}; set two")
    tags = SourceTags(config.target if config.target_tag else None)
    return {
        name: replace(split, tags=tags, sentences=config.documents or 1)
        for name, split in makers[config.corpus](config).items()
    }


def _pocket(config: DataConfig) -> dict[str, Split]:
    if {config.source, config.target} != {"en", "de"}:
        raise InputError(
            "the pocket corpus is English and German; set data.source=en data.target=de, "
            "or the other way round"
        )
    if config.alignment is not None:
        raise InputError(
            "the pocket corpus has links of its own; leave data.alignment out, or give your text "
            "with data=files"
        )
    folder = pocket_folder(given_path(config.cache))
    source, target = config.source, config.target
    return {
        split: Split(
            Corpus((folder / f"{split}.{source}", folder / f"{split}.{target}"), source, target),
            links=folder / f"{split}.{source}-{target}.links",
        )
        for split in POCKET_SPLITS
    }


def _pocket_grammar() -> Path:
    """Return the folder of the grammar: in the installed package, or else in the checkout."""
    package = Path(__file__).resolve().parents[2]
    folders = (package / "pocket", package.parent / "data" / "pocket")
    return next((folder for folder in folders if folder.is_dir()), folders[-1])


def pocket_folder(cache: Path) -> Path:
    """Return a folder with the pocket corpus, made anew when grammar or engine has changed.

    It holds ``SPLIT.LANGUAGE`` (text), ``SPLIT.LANGUAGE.conllu`` (words and tags), and
    ``SPLIT.LANGUAGE-LANGUAGE.links`` (word alignment), for all POCKET_SPLITS.

    Raises:
        InputError: the cache cannot be written to, or the grammar not be read.
    """
    grammar, engine = _pocket_grammar(), Path(__file__).resolve().parents[1]
    digest = hashlib.sha256(str(_POCKET_SEED).encode())
    for path in sorted([*grammar.glob("*.yaml"), *engine.glob("*.py")]):
        digest.update(path.name.encode() + path.read_bytes())
    folder = cache / f"pocket-{digest.hexdigest()[:24]}"
    with locked(cache):
        if not folder.is_dir():
            with written_whole(folder) as part:
                _generate_pocket(grammar, part)
    return folder


def _generate_pocket(grammar: Path, folder: Path) -> None:
    from transformer.data.grammar import Grammar, generate_splits

    logger.info("making the pocket corpus from the grammar in %s", grammar)
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in generate_splits(Grammar.load(grammar), _POCKET_SEED).items():
        links = [pair.links for pair in pairs]
        swapped = [{(german, english) for english, german in those} for those in links]
        files = {
            "en": (pair.english.text for pair in pairs),
            "de": (pair.german.text for pair in pairs),
            "en-de.links": map(format_links, links),
            "de-en.links": map(format_links, swapped),
            "en.conllu": (format_conllu(pair.english.words, pair.english.tags) for pair in pairs),
            "de.conllu": (format_conllu(pair.german.words, pair.german.tags) for pair in pairs),
        }
        for name, lines in files.items():
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{name}").write_text(text, encoding="utf-8", newline="\n")


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
