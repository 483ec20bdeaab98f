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
    VECTORS,
    TokenizerConfig,
)

logger = logging.getLogger(__name__)


# SentencePiece leaves longer lines (in bytes) out: they are cut.
_MAX_LINE_BYTES = 16_384


def vocabularies(
    config: TokenizerConfig, pairs: Pairs, cache: Path | None, content: str | None, name: object
) -> tuple[bytes, bytes | None]:
    """Return the models of source and target, as `Tokenizer.train`; the second is None if joint."""
    if cache is None or {*config.algorithms} <= {*FILES}:
        return _learn(config, pairs, name)
    digest = hashlib.sha256((content or "").encode())
    if content is None:
        for source, target in pairs():
            digest.update(f"{source}\n{target}\n".encode())
    # Sampling changes how the vocabulary is used, not what it holds.
    learned = asdict(config) | {
        "sampling": None,
        "library": sentencepiece.__version__,
        "longest_line": _MAX_LINE_BYTES,
    }
    digest.update(json.dumps(learned, sort_keys=True).encode())
    for side, algorithm in enumerate(config.algorithms):
        if algorithm in FILES:
            digest.update(read_vocabulary(config, side))
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
        algorithm = config.algorithms[side]
        if algorithm in VECTORS:
            return b"files"  # Tokenizer.train knows how they become vectors
        if algorithm in FILES:
            return read_vocabulary(config, side)
        if algorithm in SYMBOLS:
            return count_symbols(texts, config, side, name)
        return learn_vocabulary(texts, algorithm, config, name)

    if config.one_vocabulary:
        return learn((text for pair in pairs() for text in pair), 0), None
    source = learn((source for source, _ in pairs()), 0)
    target = learn((target for _, target in pairs()), 1)
    return source, target


def learn_vocabulary(
    texts: Iterable[str], algorithm: str, config: TokenizerConfig, name: object
) -> bytes:
    """Return a SentencePiece model of exactly ``vocab_size`` subwords; blank texts are skipped."""
    model = BytesIO()
    failures: list[Exception] = []

    def lines() -> Iterator[str]:
        try:
            # Only the drawn texts are normalized: a small part of a large corpus.
            for text in _sample((text for text in texts if text), config.max_sentences):
                normalized = normalize(text)
                if normalized:
                    # Encoding spells NUL and SentencePiece's sign for the space in bytes, so the
                    # vocabulary needs no subword for them.
                    yield from _cut(normalized.replace("\0", " ").replace(WORD_START, " "))
        except Exception as error:  # SentencePiece hides it
            failures.append(error)

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines(),
            model_writer=model,
            model_type=algorithm,
            vocab_size=config.vocab_size,
            user_defined_symbols=list(dict.fromkeys(map(normalize, config.words))),
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
        failures.append(_explained(error, config.vocab_size or 0, name))
    if failures:
        raise failures[0]
    return model.getvalue()


def _cut(text: str) -> Iterator[str]:
    """Yield a text in parts of at most _MAX_LINE_BYTES, cut between words if there are any."""
    while len(text.encode()) > _MAX_LINE_BYTES:
        most = _MAX_LINE_BYTES // 4  # a character has up to four bytes
        end = text.rfind(" ", 1, most)
        part = text[: most if end < 0 else end]
        yield part
        text = text[len(part) :].lstrip(" ")
    yield text


def _sample(texts: Iterable[str], size: int) -> list[str]:
    """Draw at most ``size`` texts uniformly; SentencePiece would draw others in each process."""
    random = Random(0)
    sample: list[str] = []
    for number, text in enumerate(texts, start=1):
        if number <= size:
            sample.append(text)
            continue
        index = int(random.random() * number)
        if index < size:
            sample[index] = text
    return sample


def _explained(error: Exception, vocab_size: int, name: object) -> Exception:
    message = str(error)
    if "sentences_.empty" in message:
        return InputError(
            f"{name}: no line has text to learn a vocabulary from; give another training text"
        )
    too_large = re.search(r"size too high \(\d+\).*<= (\d+)", message)
    if too_large:
        return VocabularyTooLarge(vocab_size, int(too_large[1]))
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if too_small:
        return InputError(
            f"vocabulary size {vocab_size} does not hold the alphabet of this corpus and 256 "
            f"bytes: at least {too_small[1]}; set tokenizer.vocab_size={too_small[1]} or larger, "
            "or lower tokenizer.character_coverage"
        )
    return error


class VocabularyTooLarge(InputError):
    """A text has at most ``largest`` subwords."""

    def __init__(self, size: int, largest: int) -> None:
        super().__init__(
            f"vocabulary size {size} is too large for this corpus: at most {largest}; "
            f"set tokenizer.vocab_size={largest} or smaller"
        )
        self.largest = largest


def largest_vocabulary(config: TokenizerConfig, error: VocabularyTooLarge) -> TokenizerConfig:
    """Return the settings with the largest size that the text allows; logs a warning."""
    logger.warning(
        "tokenizer.vocab_size=%d is too large for this text; %d, the largest possible, is taken",
        config.vocab_size,
        error.largest,
    )
    return replace(config, vocab_size=error.largest)
