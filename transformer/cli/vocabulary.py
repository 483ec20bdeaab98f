"""The largest vocabulary that a small text gives, where the command names no size.

It does not know how a vocabulary is learnt.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig

logger = logging.getLogger(__name__)

_SIZE = "tokenizer.vocab_size"
_SHRUNK = f"{_SIZE}=%d is too large for this text"

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
    from transformer.data.vocabulary import VocabularyTooLarge

    while True:
        try:
            return learn()
        except VocabularyTooLarge as error:
            asked, config.tokenizer.vocab_size = config.tokenizer.vocab_size, error.largest
            logger.warning(f"{_SHRUNK}; %d, the largest possible, is taken", asked, error.largest)


def as_asked(values: Mapping[str, Any], log: Path, asked: int) -> Mapping[str, Any]:
    """The config of a run as its command was, if its log says that the text did not allow it."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    if _SHRUNK % asked not in text or not isinstance(values.get("tokenizer"), Mapping):
        return values
    return {**values, "tokenizer": {**values["tokenizer"], "vocab_size": asked}}
