"""Text to tokens and back: subwords (Kudo 2018, Sennrich 2016), characters or words.

Does not know files, batches or models.
"""

import hashlib
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import asdict, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.data.tokenization.config import BOS, EOS, PAD, SYMBOLS, UNK, Pairs, TokenizerConfig
from transformer.data.tokenization.normalization import normalize
from transformer.data.tokenization.subword_model import Subwords
from transformer.data.tokenization.tags import UNTAGGED, SourceTags, Tags, parse_tags
from transformer.data.tokenization.vocabulary import Vocabulary

__all__ = ["BOS", "EOS", "PAD", "UNK", "Pairs", "Tokenizer", "TokenizerConfig", "normalize"]

_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, InputError)


class Tokenizer:
    """Source and target vocabularies, one and the same when joint, and the tags after each."""

    def __init__(
        self,
        config: TokenizerConfig,
        source: bytes,
        target: bytes | None,
        tags: Tags | None = None,
        threads: int = -1,
    ) -> None:
        """Wrap learnt models; ``target`` is None when the vocabulary is joint.

        ``threads`` encode a batch of texts; -1: as many as there are cores.
        """
        self.config = config
        self.tags = tags or Tags()
        self.source_tags = UNTAGGED
        self._models = (source, target)
        self._source = self._target = self._vocabulary(source, 0, threads)
        if target is not None:
            self._target = self._vocabulary(target, 1, threads)

    def _vocabulary(self, model: bytes, side: int, threads: int) -> Vocabulary:
        algorithm = self.config.algorithms[side]
        if algorithm in SYMBOLS:
            from transformer.data.tokenization.symbol_vocabulary import Symbols

            return Symbols(model, self.tags)
        return Subwords(model, replace(self.config, algorithm=algorithm), self.tags, threads)

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
            content: a fingerprint of the text; None: it is computed.
            name: of the text, for messages.

        Raises InputError if the text is empty, or the vocabulary too large or too small for it.
        """
        from transformer.data.tokenization.vocabulary_training import vocabularies

        return cls(config, *vocabularies(config, pairs, cache, content, name))

    @property
    def joint(self) -> bool:
        """True when both languages share one vocabulary."""
        return self._source is self._target

    @property
    def same_ids(self) -> bool:
        """True when the same id means the same subword on both sides, as if they were joint."""
        if self.joint:
            return True
        source, target = (side.spelt(range(len(side))) for side in (self._source, self._target))
        return source == target

    @property
    def source_vocab_size(self) -> int:
        """Number of source subwords and tags."""
        return len(self._source)

    @property
    def target_vocab_size(self) -> int:
        """Number of target subwords and tags."""
        return len(self._target)

    @property
    def never_written(self) -> tuple[int, ...]:
        """Ids of the tokens that no target has, and of the tags: all but the separator."""
        separators = 0 if self._target.separator is None else 1
        tags = range(self._target.first_tag + separators, len(self._target))
        return (*self._target.never_written, *tags)

    @property
    def fingerprint(self) -> str:
        """A hash of vocabularies and tags."""
        parts = [model or b"" for model in self._models]
        if self.tags != Tags():
            parts.append(repr((self.tags, self.source_tags)).encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    @property
    def cut_fingerprint(self) -> str:
        """A hash of all that decides the ids of a text: without tags that it does not have."""
        first, separator = self._source.first_tag, self._target.separator
        before = [first + index for index in self.tags.indices(self.source_tags)]
        subwords = self.with_tags(Tags()).fingerprint
        if not before and separator is None:
            return subwords
        return hashlib.sha256(f"{subwords} {before} {separator}".encode()).hexdigest()

    def tagged(self, tags: SourceTags) -> "Tokenizer":
        """Return it with default tags for sources without; raises InputError for an unknown tag."""
        self.tags.check_known(tags)
        tagged = copy(self)
        tagged.source_tags = tags
        return tagged

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the subword ids of source texts, without bos or eos; a blank text has none.

        A text begins with its own tags (`TaggedText`), or with those of the tokenizer (`tagged`).
        Raises InputError if a tag is unknown, or a required one is missing.
        """
        return self._prefixed(texts, self._source.encode(texts))

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the subword ids of target texts, without bos or eos; a blank text has none."""
        return self._target.encode(texts)

    def sample_source(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Sample a segmentation of each source text: a function of text, tags and seed."""
        return self._prefixed(texts, self._source.sample(texts, seeds))

    def sample_target(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Sample a segmentation of each target text: a function of text and seed."""
        return self._target.sample(texts, seeds)

    def _prefixed(self, texts: Sequence[str], rows: list[list[int]]) -> list[list[int]]:
        tags_of_rows = [
            parse_tags(text).over(self.source_tags) if row else None
            for text, row in zip(texts, rows, strict=True)
        ]
        prefixes: dict[SourceTags | None, list[int]] = {
            tags: [self._source.first_tag + index for index in self.tags.indices(tags)]
            for tags in set(tags_of_rows)
            if tags is not None
        }
        if not any(prefixes.values()):
            return rows
        return [prefixes.get(tags, []) + row for tags, row in zip(tags_of_rows, rows, strict=True)]

    def leading_tags(self, source: Sequence[int]) -> int:
        """Return the number of tags that a source begins with."""
        return sum(1 for _ in takewhile(lambda subword: subword >= self._source.first_tag, source))

    def decode_source(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Join source subwords into texts, as `decode_target`."""
        return self._source.decode(ids)

    def decode_target(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Join target subwords into texts; without pad, bos, eos and tags, a separator is a space.

        A text may have all characters that `normalize` keeps, line ends included. Bytes that are
        not UTF-8 become U+FFFD.
        """
        return self._target.decode(ids)

    def subwords(self, ids: Iterable[int]) -> list[str]:
        """Return target subwords as spelt in the vocabulary, control symbols too."""
        return self._target.spelt(ids)

    def source_subwords(self, ids: Iterable[int]) -> list[str]:
        """Return source subwords as spelt in the vocabulary, control symbols too."""
        return self._source.spelt(ids)

    def with_sampling(self, sampling: float) -> "Tokenizer":
        """Return a tokenizer of the same vocabularies with another strength of sampling."""
        return Tokenizer(replace(self.config, sampling=sampling), *self._models, self.tags)

    def with_tags(self, tags: Tags) -> "Tokenizer":
        """Return a tokenizer of the same subwords with these tags."""
        return Tokenizer(self.config, *self._models, tags)

    def in_one_thread(self) -> "Tokenizer":
        """Return the same tokenizer that encodes in one thread, for one of several processes."""
        single = Tokenizer(self.config, *self._models, self.tags, threads=1)
        single.source_tags = self.source_tags
        return single

    def to_state(self) -> dict[str, Any]:
        """Return plain types and uint8 tensors, for a checkpoint."""
        source, target = self._models
        return {
            "config": asdict(self.config),
            "source": torch.frombuffer(bytearray(source), dtype=torch.uint8),
            "target": (
                None if target is None else torch.frombuffer(bytearray(target), dtype=torch.uint8)
            ),
            "tags": self.tags.to_state(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Tokenizer":
        """Rebuild a tokenizer from `to_state`; raises InputError if the state is damaged."""
        try:
            return cls(
                typed(TokenizerConfig, state["config"], "tokenizer"),
                _to_bytes(state["source"]),
                None if state["target"] is None else _to_bytes(state["target"]),
                typed(Tags, state["tags"], "tags"),
            )
        except _DAMAGED as error:
            raise InputError(
                f"the tokenizer of the checkpoint is damaged ({error}); use another checkpoint"
            ) from error

    def check_vocabulary_sizes(self, source: int, target: int) -> None:
        """Raise an InputError if these vocabulary sizes of a model differ from the tokenizer's."""
        if (source, target) != (self.source_vocab_size, self.target_vocab_size):
            raise InputError(
                f"the model has {source} source and {target} target subwords, and its tokenizer "
                f"{self.source_vocab_size} and {self.target_vocab_size}; use another checkpoint"
            )


def _to_bytes(model: Any) -> bytes:
    if not isinstance(model, torch.Tensor) or model.dtype != torch.uint8 or model.dim() != 1:
        raise ValueError("a vocabulary is not a uint8 vector")
    return bytes(model.numpy())
