"""Text to subword pieces and back: SentencePiece unigram (Kudo 2018) and BPE (Sennrich 2016).

Home of the control symbols. Does not know files, batches or models.
"""

import hashlib
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import asdict, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.data.tokenization.config import TokenizerConfig as TokenizerConfig
from transformer.data.tokenization.normalization import normalize as normalize
from transformer.data.tokenization.subword_model import Subwords
from transformer.data.tokenization.tags import UNTAGGED, SourceTags, Tags, parse_tags
from transformer.data.tokenization.vocabulary_training import EmptyText, vocabularies
from transformer.data.tokenization.vocabulary_training import Pairs as Pairs

PAD, UNK, BOS, EOS = 0, 1, 2, 3

SYMBOLS = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}


class Tokenizer:
    """Source and target vocabularies, one and the same when joint, and the tags after each."""

    def __init__(
        self, config: TokenizerConfig, source: bytes, target: bytes | None, tags: Tags | None = None
    ) -> None:
        """Wrap trained SentencePiece models; ``target`` is None when the vocabulary is joint."""
        self.config = config
        self.tags = tags or Tags()
        self.source_tags = UNTAGGED
        self._models = (source, target)
        self._source = Subwords(source, config, self.tags)
        self._target = self._source if target is None else Subwords(target, config, self.tags)

    @classmethod
    def train(
        cls,
        config: TokenizerConfig,
        pairs: Pairs,
        cache: Path | None = None,
        content: str | None = None,
        name: object = "the training text",
    ) -> "Tokenizer":
        """Learn the vocabularies from the training text.

        Args:
            config: what to learn.
            pairs: called for each pass over the aligned (source, target) training text.
            cache: folder that keeps trained vocabularies, by the content of text and config.
            content: a fingerprint of the text; computed from the text where it is not given.
            name: of the text, such as its file.

        Raises:
            InputError: the text is empty, or cannot fill the vocabulary or not be held by it.
        """
        try:
            return cls(config, *vocabularies(config, pairs, cache, content, SYMBOLS))
        except EmptyText as error:
            raise InputError(f"{name}: {error}") from error

    @property
    def joint(self) -> bool:
        """True when both languages share one vocabulary."""
        return self._source is self._target

    @property
    def source_vocab_size(self) -> int:
        """Pieces of the source vocabulary, and the tags."""
        return len(self._source)

    @property
    def target_vocab_size(self) -> int:
        """Pieces of the target vocabulary, and the tags."""
        return len(self._target)

    @property
    def never_written(self) -> range:
        """Ids of the tags that no target holds: all but the separator."""
        separators = 0 if self._target.separator is None else 1
        return range(self._target.first_tag + separators, len(self._target))

    @property
    def fingerprint(self) -> str:
        """A hash of vocabularies and tags: the same fingerprint cuts the same text alike."""
        parts = [model or b"" for model in self._models]
        if self.tags != Tags():
            parts.append(repr((self.tags, self.source_tags)).encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    @property
    def cut_fingerprint(self) -> str:
        """A hash of what decides the ids of a text: a tag that it does not have changes nothing."""
        first, separator = self._source.first_tag, self._target.separator
        before = [first + index for index in self.tags.indices(self.source_tags)]
        subwords = self.with_tags(Tags()).fingerprint
        if not before and separator is None:
            return subwords
        return hashlib.sha256(f"{subwords} {before} {separator}".encode()).hexdigest()

    def tagged(self, tags: SourceTags) -> "Tokenizer":
        """Return the same tokenizer, which puts these before a source that names none itself.

        Raises:
            InputError: there is no such tag.
        """
        self.tags.check_known(tags)
        tagged = copy(self)
        tagged.source_tags = tags
        return tagged

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """Cut source texts into piece ids, without bos or eos; a blank text has none.

        A text begins with its own tags (`TaggedText`), else with those of the tokenizer (`tagged`).

        Raises:
            InputError: there is no such tag, or one is missing.
        """
        return self._prefixed(texts, self._source.encode(texts))

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Cut target texts into piece ids, without bos or eos; a blank text has none."""
        return self._target.encode(texts)

    def sample_source(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Draw one segmentation of each source text; a function of text, tags and seed alone."""
        return self._prefixed(texts, self._source.sample(texts, seeds))

    def sample_target(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Draw one segmentation of each target text; a function of text and seed alone."""
        return self._target.sample(texts, seeds)

    def _prefixed(self, texts: Sequence[str], rows: list[list[int]]) -> list[list[int]]:
        wanted = [
            parse_tags(text).over(self.source_tags) if row else None
            for text, row in zip(texts, rows, strict=True)
        ]
        prefixes: dict[SourceTags | None, list[int]] = {
            tags: [self._source.first_tag + index for index in self.tags.indices(tags)]
            for tags in set(wanted)
            if tags is not None
        }
        if not any(prefixes.values()):
            return rows
        return [prefixes.get(tags, []) + row for tags, row in zip(wanted, rows, strict=True)]

    def leading_tags(self, source: Sequence[int]) -> int:
        """Count the tags that a source begins with."""
        return sum(1 for _ in takewhile(lambda subword: subword >= self._source.first_tag, source))

    def decode_source(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Join source pieces into texts, as `decode_target`."""
        return self._source.decode(ids)

    def decode_target(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Join target pieces into texts; pad, bos, eos and tags vanish, a separator is a space.

        A text may hold any character but those that `normalize` removes, line ends included:
        bytes that make no UTF-8 become U+FFFD.
        """
        return self._target.decode(ids)

    def subwords(self, ids: Iterable[int]) -> list[str]:
        """Return the target pieces as they are spelt in the vocabulary, control symbols too."""
        return self._target.spelt(ids)

    def source_subwords(self, ids: Iterable[int]) -> list[str]:
        """Return the source pieces as they are spelt in the vocabulary, control symbols too."""
        return self._source.spelt(ids)

    def with_sampling(self, sampling: float) -> "Tokenizer":
        """Return a tokenizer of the same vocabularies that samples with another strength."""
        return Tokenizer(replace(self.config, sampling=sampling), *self._models, self.tags)

    def with_tags(self, tags: Tags) -> "Tokenizer":
        """Return a tokenizer of the same subwords with these tags after them."""
        return Tokenizer(self.config, *self._models, tags)

    def in_one_thread(self) -> "Tokenizer":
        """Return the same tokenizer, encoding in the calling thread: for one process of many."""
        single = copy(self)
        source, target = self._models
        single._source = single._target = Subwords(source, self.config, self.tags, threads=1)
        if target is not None:
            single._target = Subwords(target, self.config, self.tags, threads=1)
        return single

    def to_state(self) -> dict[str, Any]:
        """Return plain types and uint8 tensors, which a checkpoint can hold."""
        source, target = self._models
        return {
            "config": asdict(self.config),
            "source": _to_tensor(source),
            "target": None if target is None else _to_tensor(target),
            "tags": self.tags.to_state(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Tokenizer":
        """Rebuild a tokenizer from `to_state`; one of before there were tags has none.

        Raises:
            InputError: the state is not what `to_state` has returned.
        """
        try:
            tags = state.get("tags")
            return cls(
                typed(TokenizerConfig, state["config"], "tokenizer"),
                _to_bytes(state["source"]),
                None if state["target"] is None else _to_bytes(state["target"]),
                None if tags is None else typed(Tags, tags, "tags"),
            )
        except (LookupError, ValueError, AttributeError, RuntimeError, InputError) as error:
            raise InputError(
                f"the tokenizer of the checkpoint is damaged ({error}); use another checkpoint"
            ) from error

    def check_vocabulary_sizes(self, source: int, target: int) -> None:
        """Refuse a model of another vocabulary: it would speak of pieces that are not there.

        Args:
            source: Pieces that the model reads.
            target: Pieces that it writes.

        Raises:
            InputError: It has not as many as this tokenizer.
        """
        if (source, target) != (self.source_vocab_size, self.target_vocab_size):
            raise InputError(
                f"the model has {source} source and {target} target pieces, and its tokenizer "
                f"{self.source_vocab_size} and {self.target_vocab_size}; use another checkpoint"
            )


def _to_tensor(model: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(model, dtype=np.uint8).copy())


def _to_bytes(model: Any) -> bytes:
    if not isinstance(model, torch.Tensor) or model.dtype != torch.uint8 or model.dim() != 1:
        raise ValueError("a vocabulary is no row of bytes")
    return bytes(model.numpy())
