"""Text to tokens and back: subwords (Kudo 2018; Sennrich et al. 2016), characters or words."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from transformer.common.errors import InputError
from transformer.common.packages import MissingPackage
from transformer.common.schema import typed
from transformer.data.tokenization.file_vocabulary import open_vocabulary, with_words
from transformer.data.tokenization.normalization import normalize
from transformer.data.tokenization.tags import TIME_STEP, UNTAGGED, SourceTags, Tags, parse_tags
from transformer.data.tokenization.vocabulary import Pairs
from transformer.settings.sources import SourceConfig
from transformer.settings.tokenizer import VECTORS, TokenizerConfig

if TYPE_CHECKING:  # it imports what reads files
    from transformer.data.tokenization.vector_source import VectorSource

Row = Sequence[int] | np.ndarray
"""A side of a pair: subword ids, without bos or eos, or vectors, ``length channel``."""


class Tokenizer:
    """The vocabularies of source and target (one object if joint), each followed by the tags."""

    def __init__(
        self,
        config: TokenizerConfig,
        source: bytes,
        target: bytes | None,
        tags: Tags | None = None,
        threads: int = -1,
    ) -> None:
        """Wrap learned models; ``target`` is None if joint; ``threads`` -1 is one for each core."""
        self.config = config
        self.tags = tags or Tags()
        self.source_tags = UNTAGGED
        self._models = (source, target)
        self._source = self._target = open_vocabulary(source, config, 0, self.tags, threads)
        if target is not None:
            self._target = open_vocabulary(target, config, 1, self.tags, threads)

    @classmethod
    def train(
        cls,
        config: TokenizerConfig,
        pairs: Pairs,
        cache: Path | None = None,
        content: str | None = None,
        name: object = "the training text",
        source: SourceConfig | None = None,
    ) -> "Tokenizer":
        """Learn the vocabularies from the training text, called ``name`` in messages.

        The folder ``cache`` stores them by the config and ``content``, the fingerprint of the text
        (None: it is computed). Sources of files become vectors by ``source``. Raises InputError if
        the text is unsuitable.
        """
        from transformer.data.tokenization.vocabulary_training import vocabularies

        source_model, target_model = vocabularies(config, pairs, cache, content, name)
        if source is not None:
            from transformer.data.tokenization.vector_source import model_of_vectors

            source_model = model_of_vectors(source.without_training())
        return cls(config, source_model, target_model)

    @property
    def joint(self) -> bool:
        """True when both languages share one vocabulary."""
        return self._source is self._target

    @property
    def reads_files(self) -> bool:
        """Whether a source is the path of a file, which becomes vectors."""
        return self.config.algorithms[0] in VECTORS

    @property
    def vector_source(self) -> "VectorSource":
        """What reads these files."""
        from transformer.data.tokenization.vector_source import VectorSource

        assert isinstance(self._source, VectorSource)
        return self._source

    def require_text(self, purpose: str) -> None:
        """Raise InputError, which begins with the purpose, if the tokenizer reads files."""
        if self.reads_files:
            raise InputError(
                f"{purpose} reads source text, and the sources of this model are files "
                f"({self.config.algorithms[0]}); use a model of text"
            )

    def require_sound(self, purpose: str) -> None:
        """Raise InputError, which begins with the purpose, if the sources are not sounds."""
        kind = self.config.algorithms[0] if self.reads_files else "text"
        if kind != "speech":
            raise InputError(
                f"{purpose} has the times of a sound, and the sources of this model are {kind}; "
                "use a model of speech"
            )

    @property
    def same_ids(self) -> bool:
        """True when the same id means the same subword on both sides, as in a joint one."""
        if self.joint:
            return True
        source = self._source.spelled(range(len(self._source)))
        target = self._target.spelled(range(len(self._target)))
        return source == target

    @property
    def source_vocab_size(self) -> int:
        """Number of source subwords and tags; of a source of files, the numbers of a vector."""
        return len(self._source)

    @property
    def target_vocab_size(self) -> int:
        """Number of target subwords and tags."""
        return len(self._target)

    @property
    def never_written(self) -> tuple[int, ...]:
        """Ids of the tokens that no target has, and of the tags except the separator."""
        first = self._target.first_tag + (self._target.separator is not None)
        return (*self._target.never_written, *range(first, len(self._target)))

    @property
    def languages(self) -> range:
        """Ids of the languages of ``tags.targets`` on the target side."""
        first = self._target.first_tag + bool(self.tags.sentences) + self.tags.begin
        return range(first, first + len(self.tags.targets))

    @property
    def no_speech(self) -> int | None:
        """Id of the symbol of a sound without speech, if a model of speech has it."""
        index = self.tags.no_speech
        return None if index is None else self._target.first_tag + index

    @property
    def times(self) -> range:
        """Ids of the times of a model of speech (`SpeechTags`), `TIME_STEP` apart."""
        return range(self._target.first_tag + self.tags.first_time, len(self._target))

    @property
    def fingerprint(self) -> str:
        """A hash of vocabularies and tags."""
        parts = [model or b"" for model in self._models]
        if self.tags != Tags():
            parts.append(repr((self.tags, self.source_tags)).encode())
        if self.tags.speech is not None:
            parts.append(repr(self.tags.speech).encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    @property
    def encoding_fingerprint(self) -> str:
        """A hash of everything that determines the ids of a text; unused tags do not count."""
        separator = self._target.separator
        tags = self._leading(self.source_tags) + self._target_tags(self.source_tags)
        subwords = self.with_tags(Tags()).fingerprint
        if not tags and separator is None:
            return subwords
        return hashlib.sha256(f"{subwords} {tags} {separator}".encode()).hexdigest()

    def tagged(self, tags: SourceTags) -> "Tokenizer":
        """Return it with default tags for sources without; raises InputError for an unknown tag."""
        self.tags.check_known(tags)
        tagged = copy(self)
        tagged.source_tags = tags
        return tagged

    def encode_source(self, texts: Sequence[str]) -> list[Any]:
        """Return the subword ids of source texts, without bos or eos; a blank text has none.

        A text begins with its own tags (`TaggedText`), or with those of the tokenizer (`tagged`).
        If the tokenizer reads files, they are arrays ``length channel`` instead.
        """
        if self.reads_files:
            return self.vector_source.read(texts)
        return self._prefixed(texts, self._source.encode(texts))

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the subword ids of target texts, without tags, bos or eos; a blank has none."""
        return self._target.encode(texts)

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[Any, list[int]]]:
        """Return the subword ids of (source, target) texts with their tags, as `encode_source`."""
        sources = [source for source, _ in pairs]
        targets = self.encode_target([target for _, target in pairs])
        rows = zip(self.encode_source(sources), self.target_tags(sources), targets, strict=True)
        return [(source, [*tags, *target] if target else []) for source, tags, target in rows]

    def target_tags(self, sources: Sequence[str]) -> list[list[int]]:
        """Return the tags that the target of each source begins with; a blank source has none."""
        return [
            self._target_tags(parse_tags(text).over(self.source_tags)) if text.strip() else []
            for text in sources
        ]

    def _target_tags(self, tags: SourceTags) -> list[int]:
        return [self._target.first_tag + index for index in self.tags.target_indices(tags)]

    def sample_source(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Sample a segmentation of each source text: a function of text, tags and seed."""
        return self._prefixed(texts, self._source.encode(texts, seeds))

    def sample_target(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Sample a segmentation of each target text: a function of text and seed."""
        tags = self._target_tags(self.source_tags)
        return [[*tags, *row] if row else [] for row in self._target.encode(texts, seeds)]

    def _prefixed(self, texts: Sequence[str], rows: list[list[int]]) -> list[list[int]]:
        leading = cache(self._leading)
        return [
            leading(parse_tags(text).over(self.source_tags)) + row if row else []
            for text, row in zip(texts, rows, strict=True)
        ]

    def _leading(self, tags: SourceTags) -> list[int]:
        return [self._source.first_tag + index for index in self.tags.indices(tags)]

    def leading_tags(self, source: Row) -> int:
        """Return the number of tags that a source begins with."""
        if self.reads_files:
            return 0
        return sum(1 for _ in takewhile(lambda subword: subword >= self._source.first_tag, source))

    def decode_source(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Join source subwords into texts, as `decode_target`."""
        return self._source.decode(ids)

    def decode_target(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Join target subwords into texts, without pad, bos, eos and tags; a separator is a space.

        A text may have line ends. Bytes that are not UTF-8 become U+FFFD.
        """
        return self._target.decode(ids)

    def timed_rows(
        self, row: Iterable[int]
    ) -> list[tuple[tuple[float | None, float | None], tuple[int, ...]]]:
        """Cut target subwords at their times into pieces, each with the times around it.

        Seconds; a time that is not there is None. A piece without text is left out.
        """
        pieces: list[tuple[tuple[float | None, float | None], tuple[int, ...]]] = []
        start: float | None = None
        part: tuple[int, ...] = ()
        for token in row:
            if token not in self.times:
                part += (token,) if token < self._target.first_tag else ()
                continue
            time = round((token - self.times.start) * TIME_STEP, 2)
            if part:
                pieces.append(((start, time), part))
            start, part = time, ()
        return [*pieces, ((start, None), part)] if part else pieces

    def subwords(self, ids: Iterable[int]) -> list[str]:
        """Return target subwords as spelled in the vocabulary, control symbols too."""
        return self._target.spelled(ids)

    def source_subwords(self, ids: Any) -> list[str]:
        """Return source subwords as spelled in the vocabulary, control symbols too.

        Of the vectors of a file they are names, such as times.
        """
        if self.reads_files and isinstance(ids, np.ndarray):
            return self.vector_source.labels(ids)
        return self._source.spelled(ids)

    def source_words(self, ids: Any, text: str) -> list[int]:
        """The number of the word of each subword of a source text, from 0, by the spaces of the
        text; NO_WORD is a tag. The vectors of a file are one word."""
        if self.reads_files:
            return [0] * len(ids)
        return self._source.words([*map(int, ids)], text)

    def target_words(self, ids: Row, text: str) -> list[int]:
        """As `source_words`, of the subwords of a target, or of a translation that became this."""
        return self._target.words([*map(int, ids)], text)

    def with_sampling(self, sampling: float) -> "Tokenizer":
        """Return a tokenizer of the same vocabularies with another strength of sampling."""
        config = replace(self.config, sampling=sampling)
        return Tokenizer(config, *self._models, self.tags).tagged(self.source_tags)

    def with_tags(self, tags: Tags) -> "Tokenizer":
        """Return a tokenizer of the same subwords with these tags."""
        return Tokenizer(self.config, *self._models, tags)

    def with_words(self, words: Sequence[str]) -> "Tokenizer":
        """Return a tokenizer in which these words are subwords as well, on both sides."""
        added = list(map(normalize, words))
        source, target = self._models
        source = with_words(source, added, self.config.algorithms[0])
        if target is not None:
            target = with_words(target, added, self.config.algorithms[1])
        config = replace(self.config, add=tuple(dict.fromkeys((*self.config.add, *added))))
        return Tokenizer(config, source, target, self.tags)

    def grown_from(self, before: "Tokenizer") -> tuple[list[list[int]], list[list[int]]]:
        """Return for each id of each side the ids of a smaller tokenizer that mean the same."""
        return self._source.grown_from(before._source), self._target.grown_from(before._target)

    def in_one_thread(self) -> "Tokenizer":
        """Return the same tokenizer with one thread, for one of several processes."""
        return Tokenizer(self.config, *self._models, self.tags, threads=1).tagged(self.source_tags)

    def to_state(self) -> dict[str, Any]:
        """Return plain types and uint8 tensors, for a checkpoint."""
        source, target = (
            None if model is None else torch.frombuffer(bytearray(model), dtype=torch.uint8)
            for model in self._models
        )
        return {
            "config": asdict(self.config),
            "source": source,
            "target": target,
            "tags": asdict(self.tags),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Tokenizer":
        """Rebuild a tokenizer from `to_state`; raises InputError if the state is damaged."""
        config, tags = settings_of_state(state)
        with _errors_of_damage():
            source = bytes(state["source"].numpy())
            target = None if state["target"] is None else bytes(state["target"].numpy())
            return cls(config, source, target, tags)

    def check_vocabulary_sizes(self, source: int, target: int) -> None:
        """Raise an InputError if these vocabulary sizes of a model differ from the tokenizer's."""
        if (source, target) != (self.source_vocab_size, self.target_vocab_size):
            raise InputError(
                f"the model has {source} source and {target} target subwords, and its tokenizer "
                f"{self.source_vocab_size} and {self.target_vocab_size}; use another checkpoint"
            )


def settings_of_state(state: Mapping[str, Any]) -> tuple[TokenizerConfig, Tags]:
    """The plain values in `Tokenizer.to_state`; raises InputError if they are damaged."""
    with _errors_of_damage():
        config = typed(TokenizerConfig, state["config"], "tokenizer")
        tags = typed(Tags, state["tags"], "tags")
        return config, tags


@contextmanager
def _errors_of_damage() -> Iterator[None]:
    try:
        yield
    except MissingPackage:
        raise
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError, InputError) as error:
        raise InputError(
            f"the tokenizer of the checkpoint is damaged ({error}); use another checkpoint"
        ) from error
