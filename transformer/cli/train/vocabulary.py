"""The largest vocabulary that a small text gives, where the command names no size.

It does not know how a vocabulary is learnt.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from omegaconf import DictConfig

from transformer.runs.resume import RunFolder

logger = logging.getLogger(__name__)

_SIZE = "tokenizer.vocab_size"

T = TypeVar("T")


def names_size(arguments: Sequence[str]) -> bool:
    """Whether the size stands in the command, and not only in ``conf/``."""
    return any(argument.lstrip("+").startswith(f"{_SIZE}=") for argument in arguments)


def with_largest(config: DictConfig, learn: Callable[[], T]) -> T:
    """Do what learns a vocabulary; if the text has too few pieces, again with all it has.

    Args:
        config: Of the call; its size becomes the real one. With ``tokenizer.joint=false`` it is
            the largest that both sides allow.
        learn: Reads it.
    """
    from transformer.data.tokenization.vocabulary_training import VocabularyTooLarge

    while True:
        try:
            return learn()
        except VocabularyTooLarge as error:
            asked, config.tokenizer.vocab_size = config.tokenizer.vocab_size, error.largest
            taken = f"{_SIZE}=%d is too large for this text; %d, the largest possible, is taken"
            logger.warning(taken, asked, error.largest)


def vocab_size_key(values: Mapping[Any, Any] | None) -> int | None:
    """The size in the plain values of a config, if it is a number."""
    tokenizer = (values or {}).get("tokenizer")
    size = tokenizer.get("vocab_size") if isinstance(tokenizer, Mapping) else None
    return size if type(size) is int else None


def as_asked(run: RunFolder, asked: int) -> RunFolder:
    """A run with the size of a command that names none, where that is too large for its text."""
    size = vocab_size_key(run.config)
    if run.config is None or size is None or size >= asked:
        return run
    tokenizer = {**run.config["tokenizer"], "vocab_size": asked}
    return replace(run, config={**run.config, "tokenizer": tokenizer})
