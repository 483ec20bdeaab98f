"""Learns a vocabulary, deterministically (Kudo and Richardson 2018, aclanthology.org/D18-2012)."""

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from random import Random

import sentencepiece

from transformer.common.errors import InputError
from transformer.common.files import written_whole
from transformer.data.tokenization.file_vocabulary import read_vocabulary
from transformer.data.tokenization.normalization import WORD_START, normalize
from transformer.data.tokenization.vocabulary import Pairs, count_symbols
from transformer.settings.tokenizer import (
    BOS,
    EOS,
    FILES,
    PAD,
    SYMBOLS,
    UNK,
    TokenizerConfig,
)

logger = logging.getLogger(__name__)

# Longer lines (in bytes) add nothing about subwords and slow the suffix array down.
_MAX_LINE_BYTES = 16_384


class VocabularyTooLarge(InputError):
    """A text gives no more than ``largest`` subwords."""

    def __init__(self, size: int, largest: int) -> None:
        super().__init__(
            f"vocabulary size {size} is too large for this corpus: at most {largest}; "
            f"set tokenizer.vocab_size={largest} or smaller"
        )
        self.largest = largest


def largest_vocabulary(config: TokenizerConfig, error: VocabularyTooLarge) -> TokenizerConfig:
    """The settings with the largest size that the text gives, which is logged."""
    logger.warning(
        "tokenizer.vocab_size=%d is too large for this text; %d, the largest possible, is taken",
        config.vocab_size,
        error.largest,
    )
    return replace(config, vocab_size=error.largest)


def learn_vocabulary(texts: Iterable[str], config: TokenizerConfig, name: object) -> bytes:
    """Return a SentencePiece model of exactly ``vocab_size`` subwords; blank texts are skipped."""
    model, failed = BytesIO(), list[Exception]()

    def lines() -> Iterator[str]:
        try:
            # Only the drawn texts are normalized: a small part of a large corpus.
            for text in _sample((text for text in texts if text), config.max_sentences):
                if normal := normalize(text):
                    # Spelled in bytes: NUL, a line of which teaches SentencePiece nothing, and its
                    # own sign for the space.
                    yield normal.replace("\0", " ").replace(WORD_START, " ")
        except Exception as error:  # SentencePiece hides it
            failed.append(error)

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines(),
            model_writer=model,
            model_type=config.algorithm,
            vocab_size=config.vocab_size,
            user_defined_symbols=list(map(normalize, config.words)),
            character_coverage=config.character_coverage,
            byte_fallback=True,
            normalization_rule_name="identity",
            max_sentence_length=_MAX_LINE_BYTES,
            num_threads=1,  # sums of floats in another order would give another vocabulary
            minloglevel=2,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
        )
    except (RuntimeError, OSError) as error:
        failed.append(_explained(error, config.vocab_size or 0, name))
    if failed:
        raise failed[0]
    return model.getvalue()


def _sample(texts: Iterable[str], size: int) -> list[str]:
    """Draw at most ``size`` texts uniformly; SentencePiece would draw others in each process."""
    random, kept = Random(0), []
    for number, text in enumerate(texts, start=1):
        if number <= size:
            kept.append(text)
        elif (index := int(random.random() * number)) < size:
            kept[index] = text
    return kept


def _explained(error: Exception, vocab_size: int, name: object) -> Exception:
    message = str(error)
    if "sentences_.empty" in message:
        return InputError(
            f"{name}: no line has text to learn a vocabulary from; give another training text"
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


def vocabularies(
    config: TokenizerConfig, pairs: Pairs, cache: Path | None, content: str | None, name: object
) -> tuple[bytes, bytes | None]:
    """Return the models of source and target, as `Tokenizer.train`; the second is None if joint."""
    if cache is None or {*config.algorithms} <= {*FILES}:
        return _learn(config, pairs, name)
    digest = hashlib.sha256((content or "").encode())
    for pair in pairs() if content is None else ():
        digest.update("\n".join((*pair, "")).encode())
    # Sampling changes how the vocabulary is used, not what it holds.
    learned = asdict(config) | {"sampling": None, "library": sentencepiece.__version__}
    digest.update(json.dumps(learned, sort_keys=True).encode())
    for side in (0, 1):
        digest.update(read_vocabulary(config, side) if config.algorithms[side] in FILES else b"")
    key = digest.hexdigest()[:24]
    sides = ("source",) if config.one_vocabulary else ("source", "target")
    paths = [cache / f"tokenizer-{key}.{side}.model" for side in sides]
    if not all(path.exists() for path in paths):
        cache.mkdir(parents=True, exist_ok=True)
        for path, model in zip(paths, _learn(config, pairs, name), strict=False):
            with written_whole(path) as part:
                part.write_bytes(model or b"")
    models = [path.read_bytes() for path in paths]
    return models[0], None if config.one_vocabulary else models[1]


def _learn(config: TokenizerConfig, pairs: Pairs, name: object) -> tuple[bytes, bytes | None]:
    def learn(texts: Iterable[str], side: int) -> bytes:
        if (algorithm := config.algorithms[side]) in FILES:
            return read_vocabulary(config, side)
        if algorithm not in SYMBOLS:
            return learn_vocabulary(texts, replace(config, algorithm=algorithm), name)
        return count_symbols(texts, config, side, name)

    if config.one_vocabulary:
        return learn((text for pair in pairs() for text in pair), 0), None
    return learn((source for source, _ in pairs()), 0), learn((target for _, target in pairs()), 1)
