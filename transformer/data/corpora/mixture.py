"""Several corpora as one: their splits, their sampling weights in training, and one vocabulary."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformer.common.errors import errors_name
from transformer.common.files import given_path
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import Pair, file_format
from transformer.data.text.word_alignment import WordLinks
from transformer.data.tokenization.tags import Tags
from transformer.settings.data import DataConfig, unused_keys


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
        found = [part.links for part in self.parts.values()]
        return None if None in found else found[0]

    @property
    def location(self) -> Path:
        return next(iter(self.parts.values())).location

    @property
    def has_documents(self) -> bool:
        """Whether a pair of a corpus may be several sentences of a document."""
        return any(part.sentences > 1 for part in self.parts.values())


AnySplit = Split | JoinedSplit


def mixed_splits(
    config: DataConfig, find_corpus_splits: Callable[[DataConfig], dict[str, Split]]
) -> dict[str, AnySplit]:
    """Return the splits of several corpora as `find_splits`; errors begin with the corpus."""
    found: dict[str, dict[str, Split]] = {}
    corpora = config.corpora or {}
    for name, corpus in corpus_configs(config).items():
        with errors_name(f"data.corpora.{name}"):
            splits = find_corpus_splits(corpus)
        for split, text in splits.items():
            tags = text.tags._replace(tag=corpora[name].tag)
            found.setdefault(split, {})[name] = replace(text, tags=tags)
    every: dict[str, AnySplit] = {
        split: JoinedSplit(found[split]) for split in ("train", "validation") if split in found
    }
    for split, texts in found.items():
        every |= {f"{split}_{name}": text for name, text in texts.items()}
    return every


def corpus_configs(config: DataConfig) -> dict[str, DataConfig]:
    """Return the config of each corpus, without shared keys that its kind does not read."""
    found = {}
    for name, corpus in (config.corpora or {}).items():
        mixture = ("weight", "tag")
        own = {k: v for k, v in vars(corpus).items() if v is not None and k not in mixture}
        train = own.get("train", config.train) or ()
        files = (train,) if isinstance(train, str) else train
        joins = (own.get("documents", config.documents) or 1) > 1
        if not joins or [file_format(file) for file in files] != ["jsonl"]:
            own.setdefault("document_key", None)
        single = replace(config, corpora=None, temperature=None, **own)
        unused: dict[str, Any] = {key: None for key in unused_keys(single) if key not in own}
        found[name] = replace(single, **unused)
    return found


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
    corpora, root = config.corpora or {}, 1 / (config.temperature or 1)
    masses = {
        name: size**root if corpus.weight is None else corpus.weight
        for (name, corpus), size in zip(corpora.items(), sizes, strict=True)
    }
    total = sum(masses.values()) or 1.0  # training refuses empty corpora
    return {name: mass / total for name, mass in masses.items()}


class BalancedText:
    """The training text of several corpora: as many pairs as all have, but by sampling weights."""

    def __init__(self, config: DataConfig, parts: Mapping[str, Split]) -> None:
        cache = given_path(config.cache)
        self._parts = parts
        self._sizes = {name: part.count(cache) for name, part in parts.items()}
        self._weights = sampling_weights(config, list(self._sizes.values()))

    def __iter__(self) -> Iterator[Pair]:
        """Yield pairs, corpus after corpus, evenly drawn from each."""
        total = sum(self._sizes.values())
        for name, part in self._parts.items():
            wanted, size = round(self._weights[name] * total), self._sizes[name]
            for index, pair in enumerate(part):
                for _ in range((index + 1) * wanted // size - index * wanted // size):
                    yield pair

    def fingerprint(self, cache: Path | None = None) -> str:
        parts = (
            f"{part.fingerprint(cache)} {self._weights[name]:.12f}"
            for name, part in self._parts.items()
        )
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()
