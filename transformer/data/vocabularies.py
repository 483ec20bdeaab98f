"""The vocabularies of both sides of a corpus: learnt from its text, or found in the cache.

Knows text and cache; does not know how a text is cut with them.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import sentencepiece

from transformer.common.files import written_whole
from transformer.data.config import TokenizerConfig
from transformer.data.normalization import normalize
from transformer.data.vocabulary import learn_vocabulary

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
