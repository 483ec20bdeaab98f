"""Checks sources of a vocabulary of characters or words, which cannot spell what it lacks."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from transformer.common.errors import InputError
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.data.tokenization.vocabulary import FEATURES
from transformer.decoding.constraints.request import Request
from transformer.quality.checks.characters import Alphabet
from transformer.settings.tokenizer import SYMBOLS

log = logging.getLogger(__name__)

Line = TypeVar("Line", bound=str | Request)


def checked_symbols(
    lines: Iterable[Line], tokenizer: Tokenizer, where: Callable[[int], str]
) -> Iterator[Line]:
    """Yield lines, then warn of unknown symbols; InputError for a tab in features."""
    if tokenizer.config.algorithms[0] not in SYMBOLS:
        yield from lines
        return
    alphabet = Alphabet(tokenizer.with_tags(Tags()))
    count = 0
    first = ""
    for index, line in enumerate(lines):
        text = Request.from_line(line).text
        if tokenizer.config.features is not None and text.count(FEATURES) > 1:
            raise InputError(
                f"{where(index)}: {text.count(FEATURES)} tabs; write TEXT<TAB>FEATURES, with "
                f"{tokenizer.config.features!r} between features"
            )
        unknown = alphabet.describe(False, "source", str(text))
        if unknown:
            count += 1
            first = first or f"{where(index)}: {unknown}"
        yield line
    if count:
        has = "line has" if count == 1 else "lines have"
        log.warning("%s %s symbols that the vocabulary lacks, first %s", f"{count:,}", has, first)
