"""Several corpora as one: their splits, the shares they have in training, and one vocabulary.

Knows texts and sizes; does not know pieces or batches.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.config import DataConfig
from transformer.data.corpora.split import Split
from transformer.data.corpora.unused_keys import check_keys_of_corpora, without_idle_keys
from transformer.data.text.parallel import Pair, file_format
from transformer.data.text.word_alignment import WordLinks
from transformer.data.tokenization.tags import Tags

_OF_A_MIXTURE = ("weight", "tag")
_BLANK = ("", "")


@dataclass(frozen=True)
class JoinedSplit:
    """The same split of several corpora, one after the other."""

    parts: Mapping[str, Split]
    """By the names of the corpora."""

    def __iter__(self) -> Iterator[Pair]:
        """Yield (source, target), the source with its tags; raises InputError as `Split` does."""
        return self.joined(self.parts.values())

    def joined(self, parts: Iterable[Iterable[Pair]]) -> Iterator[Pair]:
        """Yield the pairs of each corpus, which were read before or are read now.

        A blank pair stands between two corpora of documents: none goes on in the next.
        """
        for location, part in enumerate(parts):
            if location and self._has_documents:
                yield _BLANK
            yield from part

    def ranges(self, counts: Sequence[int]) -> dict[str, range]:
        """Return where each corpus stands among the pairs, by the numbers of theirs."""
        found, start = {}, 0
        for name, count in zip(self.parts, counts, strict=True):
            found[name] = range(start, start + count)
            start += count + self._has_documents
        return found

    def word_links(self) -> Iterator[WordLinks]:
        """Yield the links of each pair; raises InputError as `Split` does."""
        for location, part in enumerate(self.parts.values()):
            if location and self._has_documents:
                yield WordLinks(frozenset(), frozenset())
            yield from part.word_links()

    def fingerprint(self, cache: Path | None = None) -> str:
        """Return a hash of all that decides what the split yields, links and tags apart."""
        parts = " ".join(part.fingerprint(cache) for part in self.parts.values())
        return hashlib.sha256(parts.encode()).hexdigest()

    @property
    def links(self) -> Path | None:
        """The links of the first corpus, if those of all are known."""
        found = [part.links for part in self.parts.values()]
        return None if None in found else found[0]

    @property
    def location(self) -> Path:
        """Where the text lies: the first file of the first corpus."""
        return next(iter(self.parts.values())).location

    @property
    def _has_documents(self) -> bool:
        return any(part.sentences > 1 for part in self.parts.values())


AnySplit = Split | JoinedSplit


def mixed_splits(
    config: DataConfig, find_corpus_splits: Callable[[DataConfig], dict[str, Split]]
) -> dict[str, AnySplit]:
    """Return what `find_splits` does of several corpora.

    Args:
        config: that names them.
        splits_of_one: finds the splits of a config of one corpus.

    Raises:
        InputError: as ``find_corpus_splits`` does, the message begins with the name of the
            corpus; or a text is named for all that none reads.
    """
    found: dict[str, dict[str, Split]] = {}
    ones = corpus_configs(config)
    check_keys_of_corpora(config, ones.values())
    for name, one in ones.items():
        try:
            splits = find_corpus_splits(one)
        except InputError as error:
            raise InputError(f"data.corpora.{name}: {error}") from error
        tag = config.corpora[name].tag if config.corpora else None
        for split, text in splits.items():
            tags = text.tags._replace(tag=tag)
            found.setdefault(split, {})[name] = replace(text, tags=tags)
    every: dict[str, AnySplit] = {
        split: JoinedSplit(found[split]) for split in ("train", "validation") if split in found
    }
    for split, texts in found.items():
        every |= {f"{split}_{name}": text for name, text in texts.items()}
    return every


def corpus_configs(config: DataConfig) -> dict[str, DataConfig]:
    """Return the config of each corpus by its name: its own values, and else those for all."""
    found = {}
    for name, corpus in (config.corpora or {}).items():
        values = {field.name: getattr(corpus, field.name) for field in fields(corpus)}
        given = {
            key: value
            for key, value in values.items()
            if value is not None and key not in _OF_A_MIXTURE
        }
        if not _parted_by_key(config, given):
            given.setdefault("document_key", None)
        one = replace(config, corpora=None, temperature=None, **given)
        found[name] = without_idle_keys(one, given)
    return found


def _parted_by_key(config: DataConfig, given: Mapping[str, Any]) -> bool:
    """Whether a corpus, given what it says itself, has documents that a key of JSONL parts."""
    train = given.get("train", config.train) or ()
    files = (train,) if isinstance(train, str) else train
    joins = (given.get("documents", config.documents) or 1) > 1
    return joins and [file_format(file) for file in files] == ["jsonl"]


def config_tags(config: DataConfig) -> Tags:
    """Return the tags that the vocabulary of a run has, in the order of its corpora."""
    ones = list(corpus_configs(config).values()) or [config]
    named = [corpus.tag for corpus in (config.corpora or {}).values()]
    sentences = max(one.documents or 1 for one in ones)
    return Tags(
        targets=tuple(dict.fromkeys(one.target for one in ones)) if config.target_tag else (),
        corpora=tuple(dict.fromkeys(tag for tag in named if tag is not None)),
        optional=None in named or not named,
        sentences=sentences if sentences > 1 else 0,
        subwords=config.max_length if sentences > 1 else 0,
    )


def sampling_weights(config: DataConfig, sizes: Sequence[int]) -> dict[str, float]:
    """Return the share of each corpus, all together 1.

    Args:
        config: that names them.
        sizes: of each, in their order, whatever is counted.

    Raises:
        InputError: all are empty, and have no weight.
    """
    corpora, root = config.corpora or {}, 1 / (config.temperature or 1)
    masses = {
        name: size**root if corpus.weight is None else corpus.weight
        for (name, corpus), size in zip(corpora.items(), sizes, strict=True)
    }
    total = sum(masses.values())
    if not total:
        raise InputError(f"data.corpora: none of {', '.join(corpora)} has a training pair")
    return {name: mass / total for name, mass in masses.items()}


def format_weights(shares: Mapping[str, float]) -> str:
    """Write shares as a log shows them."""
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())


class BalancedText:
    """The training text of several corpora, each with its share of the pairs.

    Training shares out batches by the same rule, which are more where sentences are longer. As many
    pairs as there are, so that a small corpus is read more than once, or a part of a large one is
    passed over: a vocabulary learnt from it does not forget the small.
    """

    def __init__(self, config: DataConfig, parts: Mapping[str, Split]) -> None:
        """Count the pairs, where the cache does not remember how many there are.

        Raises:
            InputError: as `Split` does.
        """
        cache = given_path(config.cache)
        self._parts = parts
        self._sizes = {name: part.count(cache) for name, part in parts.items()}
        self._shares = sampling_weights(config, list(self._sizes.values()))

    def __iter__(self) -> Iterator[Pair]:
        """Yield pairs, corpus after corpus, evenly drawn from each."""
        total = sum(self._sizes.values())
        for name, part in self._parts.items():
            wanted, size = round(self._shares[name] * total), self._sizes[name]
            for location, pair in enumerate(part):
                for _ in range((location + 1) * wanted // size - location * wanted // size):
                    yield pair

    def fingerprint(self, cache: Path | None = None) -> str:
        """Return a hash of all that decides what it yields."""
        parts = (
            f"{part.fingerprint(cache)} {self._shares[name]:.12f}"
            for name, part in self._parts.items()
        )
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()
