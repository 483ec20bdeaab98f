"""From a DataConfig to the text of each split: built in, downloaded, or the user's own.

Several corpora are one: `JoinedSplit` for validation, sampling weights in training, one vocabulary.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError, MissingFile, errors_name
from transformer.common.files import PACKAGE, given_path, locked
from transformer.data.corpora.catalog import PUBLISHED, fetch, find
from transformer.data.corpora.split import Split, hold_out
from transformer.data.text.parallel import Corpus, Pair, file_format
from transformer.data.text.word_alignment import WordLinks
from transformer.data.tokenization.tags import SourceTags, Tags
from transformer.settings.data import DataConfig, check_unused_keys, unused_keys

FOLDER_NAMES = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
"""Stems of the files of each split; the language follows, and optionally ``.gz``."""


def no_training_text(config: DataConfig) -> InputError:
    """The error for ``data=files`` without training text."""
    pair = "" if config.source_kind != "text" else "[SOURCE,TARGET] or "
    return InputError(
        f"data=files needs the training text; set data.train={pair}FILE.tsv, FILE.jsonl or "
        "FILE.parquet (a run that was imported has text if it is imported again, into another "
        f"output=, with validation={pair}FILE.tsv)"
    )


def names_text(config: DataConfig) -> bool:
    """Whether there is text to train or validate on: an import without ``validation`` has none."""
    own_files = config.corpus == "files" and config.corpora is None
    return not own_files or config.train is not None or config.validation is not None


_POCKET_LANGUAGES = {"en", "de"}


_POCKET_SPLITS = ("train", "validation", "test", "test_novel")


@dataclass(frozen=True)
class JoinedSplit:
    """The same split of several corpora, concatenated."""

    parts: Mapping[str, Split]

    def __iter__(self) -> Iterator[Pair]:
        """Yield (source with its tags, target); a blank pair separates two corpora of documents."""
        for index, part in enumerate(self.parts.values()):
            if index and self.has_documents:
                yield "", ""
            yield from part

    def word_links(self) -> Iterator[WordLinks]:
        for index, part in enumerate(self.parts.values()):
            if index and self.has_documents:
                yield WordLinks(frozenset(), frozenset())
            yield from part.word_links()

    @property
    def links(self) -> Path | None:
        """The links of the first corpus, if all corpora have links."""
        links = [part.links for part in self.parts.values()]
        return None if None in links else links[0]

    @property
    def location(self) -> Path:
        return next(iter(self.parts.values())).location

    @property
    def has_documents(self) -> bool:
        """Whether a pair of a corpus may be several sentences of a document."""
        return any(part.sentences > 1 for part in self.parts.values())


AnySplit = Split | JoinedSplit


def find_splits(config: DataConfig) -> dict[str, AnySplit]:
    """Return the splits by name; of several corpora also "train_NAME" and so on for each."""
    splits: dict[str, AnySplit] = {}
    if config.corpora is None:
        splits.update(find_corpus_splits(config))
    else:
        splits.update(_mixed_splits(config))
    if "validation" not in splits:
        raise InputError(
            "training needs a validation text; set data.validation=[SOURCE,TARGET], or "
            "data.validation_size=N to hold N pairs out (not of a stream, nor of documents)"
        )
    return splits


def _mixed_splits(config: DataConfig) -> dict[str, AnySplit]:
    """Return the splits of several corpora; errors begin with the corpus."""
    texts: dict[str, dict[str, Split]] = {}
    corpora = config.corpora or {}
    for name, corpus in corpus_configs(config).items():
        with errors_name(f"data.corpora.{name}"):
            splits = find_corpus_splits(corpus)
            if "train" not in splits:
                raise no_training_text(corpus)
        for split, text in splits.items():
            tags = text.tags._replace(tag=corpora[name].tag)
            texts.setdefault(split, {})[name] = replace(text, tags=tags)
    for parts in texts.values():
        _check_directions(parts)
    mixed: dict[str, AnySplit] = {
        split: JoinedSplit(texts[split]) for split in ("train", "validation") if split in texts
    }
    for split, parts in texts.items():
        for name, text in parts.items():
            mixed[f"{split}_{name}"] = text
    return mixed


def _check_directions(parts: Mapping[str, Split]) -> None:
    """Raise InputError if two corpora read the same text and swap the names of its sides.

    The order of files and columns, not a name, says which side is the source.
    """
    names: dict[tuple[object, ...], str] = {}
    for name, part in parts.items():
        corpus = part.corpus
        if corpus.kind in ("jsonl", "parquet") or corpus.source == corpus.target:
            continue
        names.setdefault((corpus.paths, corpus.source, corpus.target), name)
        other = names.get((corpus.paths, corpus.target, corpus.source))
        if other is not None:
            files = ",".join(map(str, corpus.paths))
            raise InputError(
                f"data.corpora.{name} reads {files} as {corpus.source} to {corpus.target}, and "
                f"data.corpora.{other} the same as {corpus.target} to {corpus.source}; the source "
                "is the first file or column, so give one of them files in the other order"
            )


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
    if config.source == config.target and config.source_kind == "text":
        raise InputError(f"data.source and data.target are both {config.source!r}; set two")
    tags = SourceTags(
        config.target if config.target_tag else None,
        source=config.source if config.target_tag == "both" else None,
    )
    splits = {
        name: replace(
            split,
            corpus=replace(
                split.corpus,
                features=config.features,
                source_files=config.source_kind != "text",
            ),
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
    if "train" in splits and missing and (config.documents or 1) == 1:
        splits |= hold_out(splits["train"], missing, given_path(config.cache))
    return splits


def pocket_splits(source: str, target: str) -> dict[str, Split]:
    """Return pocket's splits with their word links; raises InputError for other languages."""
    if {source, target} != _POCKET_LANGUAGES:
        raise InputError(
            "the pocket corpus is English and German; set data.source=en data.target=de, "
            "or the other way round"
        )
    sources = pocket_text(source)
    targets = pocket_text(target)
    return {
        split: Split(
            Corpus((sources[split], targets[split]), source, target),
            links=_pocket_folder() / "links" / f"{split}.{source}-{target}.gz",
        )
        for split in _POCKET_SPLITS
    }


def pocket_text(language: str) -> dict[str, Path]:
    """Return the text of each split of pocket in a language."""
    return {split: _pocket_folder() / f"{split}.{language}.gz" for split in _POCKET_SPLITS}


def _pocket_folder() -> Path:
    inside = PACKAGE / "pocket"
    return inside if inside.is_dir() else PACKAGE.parent / "data" / "pocket"


def _published(config: DataConfig) -> dict[str, Split]:
    published = PUBLISHED[config.corpus]

    def find_file(language: str | None, split: str) -> Path:
        if config.root is not None:
            return find(published, language, split, given_path(config.root))
        cache = given_path(config.cache)
        with locked(cache):
            return fetch(published, language, split, cache / published.name)

    languages = [config.lang] if published.format else [config.source, config.target]
    return {
        split: Split(
            Corpus(
                tuple(find_file(language, split) for language in languages),
                config.source,
                config.target,
                max_line=config.max_line,
                format=published.format,
            )
        )
        for split in published.splits
    }


def _files(config: DataConfig) -> dict[str, Split]:
    # The text of a model that was imported is for validation alone.
    if not names_text(config):
        raise no_training_text(config)
    files = {"train": config.train, "validation": config.validation, "test": config.test}
    if config.streaming:
        del files["train"]  # streaming/shards.py finds it
    splits: dict[str, Split] = {}
    for name, paths in files.items():
        if paths is not None:
            corpus = Corpus.of(
                paths, config.source, config.target, config.document_key, config.max_line
            )
            for path in corpus.paths:
                if path.is_fifo():
                    raise InputError(f"{path}: a pipe cannot be read twice; give a file")
            splits[name] = Split(corpus)
    return splits


def as_files(config: DataConfig) -> DataConfig:
    """Return a config of ``data.corpus=folder`` as one of ``files``, with their paths."""
    check_unused_keys(config)
    root = given_path(config.root or "")
    if config.root is None or not root.is_dir():
        raise MissingFile(
            f"data.root={config.root or 'null'} is no folder (seen from {Path.cwd()}); data=folder "
            "needs one: set data.root=FOLDER"
        )
    files: dict[str, Any] = {}
    for split, names in FOLDER_NAMES.items():
        sides = []
        for code in (config.source, config.target):
            candidates = [root / f"{name}.{code}{gz}" for name in names for gz in ("", ".gz")]
            sides.append([path for path in candidates if path.is_file()])
        counts = [len(paths) for paths in sides]
        if counts != [1, 1] and (split == "train" or counts != [0, 0]):
            codes = zip((config.source, config.target), sides, strict=True)
            missing = [f"{split}.{code}" for code, paths in codes if not paths]
            if missing:
                raise InputError(
                    f"{root} has no {' and no '.join(missing)} (or .gz); set data.source and "
                    "data.target to the languages that the file names end in"
                )
            several = " and ".join(path.name for paths in sides for path in paths)
            raise InputError(f"{root} has {several} for {split}; keep one for each language")
        files[split] = tuple(str(paths[0]) for paths in sides if paths) or None
    return replace(config, corpus="files", root=None, **files)


def corpus_configs(config: DataConfig) -> dict[str, DataConfig]:
    """Return the config of each corpus, without shared keys that its kind does not read."""
    configs = {}
    for name, corpus in (config.corpora or {}).items():
        keys = {
            key: value
            for key, value in vars(corpus).items()
            if value is not None and key not in ("weight", "tag")
        }
        train = keys.get("train", config.train) or ()
        files = (train,) if isinstance(train, str) else train
        has_documents = (keys.get("documents", config.documents) or 1) > 1
        if not has_documents or [file_format(file) for file in files] != ["jsonl"]:
            keys.setdefault("document_key", None)
        single = replace(config, corpora=None, temperature=None, **keys)
        unused: dict[str, Any] = {key: None for key in unused_keys(single) if key not in keys}
        configs[name] = replace(single, **unused)
    return configs


def config_tags(config: DataConfig) -> Tags:
    """Return the tags that the vocabulary of a run has, in the order of its corpora."""
    configs = list(corpus_configs(config).values()) or [config]
    named = [corpus.tag for corpus in (config.corpora or {}).values()]
    sentences = max(corpus.documents or 1 for corpus in configs)
    targets = dict.fromkeys(corpus.target for corpus in configs)
    if config.target_tag == "both":
        targets |= dict.fromkeys(corpus.source for corpus in configs)
    return Tags(
        targets=tuple(targets) if config.target_tag else (),
        corpora=tuple(dict.fromkeys(tag for tag in named if tag is not None)),
        optional=None in named or not named,
        sentences=sentences if sentences > 1 else 0,
        subwords=config.max_length if sentences > 1 else 0,
        both_sides=config.target_tag == "both",
    )


def sampling_weights(config: DataConfig, sizes: Sequence[int]) -> dict[str, float]:
    """Return the sampling weights, whose sum is 1, of corpora of these sizes, in any unit."""
    exponent = 1 / (config.temperature or 1)
    weights = {
        name: size**exponent if corpus.weight is None else corpus.weight
        for (name, corpus), size in zip((config.corpora or {}).items(), sizes, strict=True)
    }
    total = sum(weights.values()) or 1.0  # training refuses empty corpora
    return {name: weight / total for name, weight in weights.items()}


class BalancedText:
    """The training text of several corpora: as many pairs as they have, by sampling weights."""

    def __init__(self, config: DataConfig, parts: Mapping[str, Split]) -> None:
        cache = given_path(config.cache)
        self._parts = parts
        self._sizes = {name: part.count(cache) for name, part in parts.items()}
        self._weights = sampling_weights(config, list(self._sizes.values()))

    def __iter__(self) -> Iterator[Pair]:
        """Yield pairs, corpus after corpus, evenly drawn from each."""
        total = sum(self._sizes.values())
        for name, part in self._parts.items():
            size = self._sizes[name]
            wanted = round(self._weights[name] * total)
            for index, pair in enumerate(part):
                for _ in range((index + 1) * wanted // size - index * wanted // size):
                    yield pair

    def fingerprint(self, cache: Path | None = None) -> str:
        parts = (
            f"{part.fingerprint(cache)} {self._weights[name]:.12f}"
            for name, part in self._parts.items()
        )
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()
