"""Settings that depend on the vocabulary: its largest size for a small text, tied embeddings."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from omegaconf import DictConfig

logger = logging.getLogger(__name__)

_SIZE = "tokenizer.vocab_size"

T = TypeVar("T")


def names_size(arguments: Sequence[str]) -> bool:
    """Whether the size is in the command, and not only in ``conf/``."""
    return any(argument.startswith(f"{_SIZE}=") for argument in arguments)


def with_largest(config: DictConfig, learn: Callable[[], T]) -> T:
    """Call what learns a vocabulary, again with the largest size if the text has fewer subwords."""
    from transformer.data.tokenization.vocabulary_training import VocabularyTooLarge

    while True:
        try:
            return learn()
        except VocabularyTooLarge as error:
            size, config.tokenizer.vocab_size = config.tokenizer.vocab_size, error.largest
            message = f"{_SIZE}=%d is too large for this text; %d, the largest possible, is taken"
            logger.warning(message, size, error.largest)
