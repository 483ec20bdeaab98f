"""Learns a subword vocabulary with SentencePiece, the same one each time from the same text.

Knows one side of the corpus only; does not know what the control symbols are for.
Kudo and Richardson 2018, https://aclanthology.org/D18-2012.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from random import Random

import sentencepiece

from transformer.common.errors import InputError
from transformer.common.files import written_whole
from transformer.data.tokenization.config import TokenizerConfig
from transformer.data.tokenization.normalization import normalize
from transformer.data.tokenization.subword_regularization import WORD_START

# Longer lines (in bytes) tell nothing new about subwords and slow the suffix array down.
_MAX_LINE_BYTES = 16_384


class EmptyText(InputError):
    """There is nothing to learn a vocabulary from."""


class VocabularyTooLarge(InputError):
    """A text gives no more than ``largest`` pieces."""

    def __init__(self, size: int, largest: int) -> None:
        super().__init__(
            f"vocabulary size {size} is too large for this corpus: at most {largest}; "
            f"set tokenizer.vocab_size={largest} or smaller"
        )
        self.largest = largest


class _Lines:
    """Hands lines to SentencePiece, which swallows what the iterator raises: this keeps it."""

    def __init__(self, texts: Iterable[str], most: int, normalize: Callable[[str], str]) -> None:
        self.texts, self.most, self.normalize = texts, most, normalize
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            # What is not drawn need not be normalised: of a large corpus, most of it.
            for text in _sample((text for text in self.texts if text), self.most):
                if normal := self.normalize(text):
                    # Spelt in bytes: NUL, a line of which teaches SentencePiece nothing, and its
                    # own sign for the space.
                    yield normal.replace("\0", " ").replace(WORD_START, " ")
        except Exception as error:
            self.error = error


def learn_vocabulary(
    texts: Iterable[str],
    *,
    normalize: Callable[[str], str],
    algorithm: str,
    vocab_size: int,
    character_coverage: float,
    max_sentences: int,
    symbols: Mapping[str, int],
) -> bytes:
    """Return a SentencePiece model learnt from texts.

    Args:
        texts: the training text, read once; blank texts are passed over.
        normalize: what is kept of a text.
        algorithm: "unigram" or "bpe".
        vocab_size: number of pieces, control symbols and 256 bytes included; met exactly.
        character_coverage: share of the text's characters that get a piece of their own.
        max_sentences: at most so many texts, drawn at random with a fixed seed, are used.
        symbols: ids of the control symbols pad, unk, bos, eos.

    Raises:
        InputError: no text, or a vocabulary too large or too small for the text.
    """
    if algorithm not in ("unigram", "bpe"):
        raise InputError(f"tokenizer.algorithm={algorithm} is unknown; set unigram or bpe")
    lines, model = _Lines(texts, max_sentences, normalize), BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=algorithm,
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            byte_fallback=True,
            normalization_rule_name="identity",
            max_sentence_length=_MAX_LINE_BYTES,
            num_threads=1,  # sums of floats in another order would give another vocabulary
            minloglevel=2,
            pad_id=symbols["pad"],
            unk_id=symbols["unk"],
            bos_id=symbols["bos"],
            eos_id=symbols["eos"],
        )
    except (RuntimeError, OSError) as error:
        raise lines.error or _explained(error, vocab_size) from error
    if lines.error is not None:
        raise lines.error
    return model.getvalue()


def _sample(texts: Iterable[str], most: int) -> list[str]:
    """Draw at most so many texts, each alike; SentencePiece would draw others in each process."""
    random, kept = Random(0), []
    for number, text in enumerate(texts, start=1):
        if number <= most:
            kept.append(text)
        elif (index := int(random.random() * number)) < most:
            kept[index] = text
    return kept


def _explained(error: Exception, vocab_size: int) -> Exception:
    message = str(error)
    if "sentences_.empty" in message:
        return EmptyText("no line has text to learn a vocabulary from; give another training text")
    if "insert_id" in message:
        return InputError(
            f"vocabulary size {vocab_size} does not hold the control symbols; set "
            "tokenizer.vocab_size=8000, or what your text needs"
        )
    if found := re.search(r"size too high \(\d+\).*<= (\d+)", message):
        return VocabularyTooLarge(vocab_size, int(found[1]))
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return InputError(
            f"vocabulary size {vocab_size} does not hold the alphabet of this corpus and 256 "
            f"bytes: at least {found[1]}; set tokenizer.vocab_size={found[1]} or larger, or "
            "lower tokenizer.character_coverage"
        )
    return error


Pairs = Callable[[], Iterable[tuple[str, str]]]
"""Called for each pass over aligned (source, target) text."""


def vocabularies(
    config: TokenizerConfig,
    pairs: Pairs,
    cache: Path | None,
    content: str | None,
    symbols: Mapping[str, int],
) -> tuple[bytes, bytes | None]:
    """Return the SentencePiece models of source and target; the second is None when joint.

    Args:
        config: what to learn.
        pairs: the training text.
        cache: folder that keeps them, by the content of text and config; None keeps nothing.
        content: a fingerprint of the text; computed from the text where it is not given.
        symbols: ids of the control symbols pad, unk, bos, eos.

    Raises:
        InputError: the text is empty, or cannot fill a vocabulary or not be held by it.
    """
    if cache is None:
        return _learn(config, pairs, symbols)
    key = _cache_key(config, pairs, content)
    paths = [cache / f"tokenizer-{key}.{side}.model" for side in ("source", "target")]
    if not config.joint and all(path.exists() for path in paths):
        return paths[0].read_bytes(), paths[1].read_bytes()
    if config.joint and paths[0].exists():
        return paths[0].read_bytes(), None
    models = _learn(config, pairs, symbols)
    cache.mkdir(parents=True, exist_ok=True)
    for path, model in zip(paths, models, strict=True):
        if model is not None:
            with written_whole(path) as part:
                part.write_bytes(model)
    return models


def _learn(
    config: TokenizerConfig, pairs: Pairs, symbols: Mapping[str, int]
) -> tuple[bytes, bytes | None]:
    def learn(texts: Iterator[str]) -> bytes:
        return learn_vocabulary(
            texts,
            normalize=normalize,
            algorithm=config.algorithm,
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
            max_sentences=config.max_sentences,
            symbols=symbols,
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
