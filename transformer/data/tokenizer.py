"""Text to subword pieces and back: SentencePiece unigram (Kudo 2018) and BPE (Sennrich 2016).

Home of the control symbols. Does not know files, batches or models.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from sentencepiece import SentencePieceProcessor

from transformer.data.cache import written_whole
from transformer.data.normalization import normalize
from transformer.data.segmentation import SegmentationSampler
from transformer.data.vocabulary import learn_vocabulary

PAD, UNK, BOS, EOS = 0, 1, 2, 3

Pairs = Callable[[], Iterable[tuple[str, str]]]


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is cut into pieces; the defaults stand in conf/tokenizer/."""

    algorithm: str
    """"unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016)."""
    vocab_size: int
    """Pieces of each vocabulary: four control symbols, 256 bytes, the alphabet, then subwords."""
    joint: bool
    """One vocabulary for both languages; otherwise one for each, of ``vocab_size`` each."""
    sampling: float
    """Subword regularisation in training; 0 is off. Unigram: the smoothing alpha of Kudo 2018
    (0.1 to 0.5; smaller is wilder). BPE: the dropout probability of Provilkov et al. 2020."""
    character_coverage: float
    """Share of the characters of the training text that get a piece; the rest is spelt in bytes."""
    max_sentences: int
    """The vocabulary is learnt from at most so many lines, drawn at random with a fixed seed."""


class Tokenizer:
    """Source and target vocabularies, one and the same when joint."""

    def __init__(self, config: TokenizerConfig, source: bytes, target: bytes | None) -> None:
        """Wrap trained SentencePiece models; ``target`` is None when the vocabulary is joint."""
        self.config = config
        self._models = (source, target)
        self._source = SentencePieceProcessor(model_proto=source)
        self._target = (
            self._source if target is None else SentencePieceProcessor(model_proto=target)
        )

    @classmethod
    def train(
        cls,
        config: TokenizerConfig,
        pairs: Pairs,
        cache: Path | None = None,
        content: str | None = None,
    ) -> "Tokenizer":
        """Learn the vocabularies from the training text.

        Args:
            config: what to learn.
            pairs: called for each pass over the aligned (source, target) training text.
            cache: folder that keeps trained vocabularies, by the content of text and config.
            content: a fingerprint of the text; computed from the text where it is not given.

        Raises:
            InputError: the text is empty, or cannot fill the vocabulary or not be held by it.
        """
        if cache is None:
            return cls(config, *_train_models(config, pairs))
        key = _cache_key(config, pairs, content)
        paths = [cache / f"tokenizer-{key}.{side}.model" for side in ("source", "target")]
        if not config.joint and all(path.exists() for path in paths):
            return cls(config, paths[0].read_bytes(), paths[1].read_bytes())
        if config.joint and paths[0].exists():
            return cls(config, paths[0].read_bytes(), None)
        models = _train_models(config, pairs)
        cache.mkdir(parents=True, exist_ok=True)
        for path, model in zip(paths, models, strict=True):
            if model is not None:
                with written_whole(path) as part:
                    part.write_bytes(model)
        return cls(config, *models)

    @property
    def joint(self) -> bool:
        """True when both languages share one vocabulary."""
        return self._source is self._target

    @property
    def source_vocab_size(self) -> int:
        """Pieces of the source vocabulary."""
        return int(self._source.get_piece_size())

    @property
    def target_vocab_size(self) -> int:
        """Pieces of the target vocabulary."""
        return int(self._target.get_piece_size())

    @property
    def fingerprint(self) -> str:
        """A hash of the vocabularies: the same fingerprint cuts the same text alike."""
        return hashlib.sha256(b"\0".join(model or b"" for model in self._models)).hexdigest()

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """Cut source texts into piece ids, without bos or eos; a blank text has none."""
        ids: list[list[int]] = self._source.encode([normalize(text) for text in texts])
        return ids

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Cut target texts into piece ids, without bos or eos; a blank text has none."""
        ids: list[list[int]] = self._target.encode([normalize(text) for text in texts])
        return ids

    def sample_source(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Draw one segmentation of each source text; a function of text and seed alone."""
        return _drawn(self._source_sampler, texts, seeds)

    def sample_target(self, texts: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Draw one segmentation of each target text; a function of text and seed alone."""
        return _drawn(self._target_sampler, texts, seeds)

    @cached_property
    def _source_sampler(self) -> SegmentationSampler:
        config = self.config
        return SegmentationSampler(self._source, config.algorithm, config.sampling)

    @cached_property
    def _target_sampler(self) -> SegmentationSampler:
        if self.joint:
            return self._source_sampler
        config = self.config
        return SegmentationSampler(self._target, config.algorithm, config.sampling)

    def decode_source(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Join source pieces into texts, as `decode_target`."""
        return _decoded(self._source, ids)

    def decode_target(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Join target pieces into texts; pad, bos and eos vanish.

        A text may hold any character but those that `normalize` removes, line ends included:
        bytes that make no UTF-8 become U+FFFD.
        """
        return _decoded(self._target, ids)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the target pieces as they are spelt in the vocabulary, control symbols too."""
        return [self._target.id_to_piece(int(piece)) for piece in ids]

    def source_pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the source pieces as they are spelt in the vocabulary, control symbols too."""
        return [self._source.id_to_piece(int(piece)) for piece in ids]

    def with_sampling(self, sampling: float) -> "Tokenizer":
        """Return a tokenizer of the same vocabularies that samples with another strength."""
        return Tokenizer(replace(self.config, sampling=sampling), *self._models)

    def in_one_thread(self) -> "Tokenizer":
        """Return the same tokenizer, encoding in the calling thread: for one process of many."""
        single = copy(self)
        source, target = self._models
        single._source = single._target = SentencePieceProcessor(model_proto=source, num_threads=1)
        if target is not None:
            single._target = SentencePieceProcessor(model_proto=target, num_threads=1)
        return single

    def to_state(self) -> dict[str, Any]:
        """Return plain types and uint8 tensors, which a checkpoint can hold."""
        source, target = self._models
        return {
            "config": asdict(self.config),
            "source": _to_tensor(source),
            "target": None if target is None else _to_tensor(target),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Tokenizer":
        """Rebuild a tokenizer from `to_state`."""
        target = state["target"]
        return cls(
            TokenizerConfig(**state["config"]),
            bytes(state["source"].numpy()),
            None if target is None else bytes(target.numpy()),
        )


def _decoded(
    model: sentencepiece.SentencePieceProcessor, ids: Iterable[Sequence[int]]
) -> list[str]:
    rows = [[int(piece) for piece in row if piece not in (PAD, BOS, EOS)] for row in ids]
    texts: list[str] = model.decode(rows)
    return texts


def _drawn(
    sampler: SegmentationSampler, texts: Sequence[str], seeds: Sequence[int]
) -> list[list[int]]:
    drawn = zip(texts, seeds, strict=True)
    return [sampler.draw(normalize(text), seed) for text, seed in drawn]


def _train_models(config: TokenizerConfig, pairs: Pairs) -> tuple[bytes, bytes | None]:
    def learn(texts: Iterator[str]) -> bytes:
        return learn_vocabulary(
            texts,
            normalize=normalize,
            algorithm=config.algorithm,
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
            max_sentences=config.max_sentences,
            symbols={"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS},
        )

    if config.joint:
        return learn(text for pair in pairs() for text in pair), None
    return learn(source for source, _ in pairs()), learn(target for _, target in pairs())


def _cache_key(config: TokenizerConfig, pairs: Pairs, content: str | None) -> str:
    digest = hashlib.sha256()
    if content is not None:
        digest.update(content.encode())
    else:
        for pair in pairs():
            digest.update("\n".join((*pair, "")).encode())
    # Sampling changes how the vocabulary is used, not what it holds.
    learnt = asdict(config) | {"sampling": None, "library": sentencepiece.__version__}
    digest.update(json.dumps(learnt, sort_keys=True).encode())
    return digest.hexdigest()[:24]


def _to_tensor(model: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(model, dtype=np.uint8).copy())
