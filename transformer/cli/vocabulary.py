"""The largest vocabulary that a small text gives, where the command names no size.

It does not know how a vocabulary is learnt.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from omegaconf import DictConfig

from transformer.cli.run_log import LOG
from transformer.training.run_folder import RunFolder

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


def as_asked(run: RunFolder, size: int) -> RunFolder:
    """A run with the size that its command asked for, if its log says that the text had less."""
    log, values = run.path / LOG, run.config
    if values is None or not log.is_file() or _SHRUNK % size not in log.read_text(errors="replace"):
        return run
    return replace(run, config={**values, "tokenizer": {**values["tokenizer"], "vocab_size": size}})
