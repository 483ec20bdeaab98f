"""Translates texts with marks: each mark of the source is once in the translation.

The marks are taken out, the plain text is translated, and each mark goes around the words that its
words became, by word links. Marks of the translation nest as those of the source do.

It does not know what a mark is.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from transformer.decoding.constraints.request import Constraints
from transformer.serving.formats.spans import MarkedText
from transformer.serving.languages.sentences import Splitting
from transformer.serving.translations import Options, TextTranslation


class Service(Protocol):
    """What translates plain texts: a ``TranslationService``."""

    async def translate(
        self,
        texts: Sequence[str],
        options: Options,
        *,
        splitting: Splitting = "sentences",
        constrain: Callable[[str], Constraints | None] | None = None,
    ) -> list[TextTranslation]:
        """Translate texts, each sentence by itself."""


async def translate_marked(
    service: Service,
    texts: Sequence[MarkedText],
    options: Options,
    *,
    splitting: Splitting = "punctuation",
    constrain: Callable[[str], Constraints | None] | None = None,
) -> list[MarkedText]:
    """Translate texts with marks, in their order.

    Args:
        service: Translates; its limits and errors are those of ``TranslationService.translate``.
        texts: Their blanks are kept at both ends.
        options: What is asked; links are computed where marks need them.
        splitting: Where texts are cut into sentences; a line end is a blank by default.
        constrain: The constraints of the translation of a sentence.

    Returns:
        Spans with the marks of the source, each mark in neighbouring spans once. A text that
        the model repeats comes back as it is.
    """
    raise NotImplementedError
