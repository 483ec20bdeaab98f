"""Translates texts with marks: each mark of the source is once in the translation.

The marks are taken out, the plain text is translated, and each mark goes around the words that its
words became, by word links. Marks of the translation nest as those of the source do.

It does not know what a mark is.
"""

import asyncio
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from transformer.common.errors import InputError
from transformer.serving.config import Limits
from transformer.serving.formats.nesting import nest
from transformer.serving.formats.projection import NEAR_BEST, is_copy, project
from transformer.serving.formats.spans import MarkedText, PlainText
from transformer.serving.languages.sentences import Part, Splitting, split_sentences
from transformer.serving.translations import (
    Constrain,
    Options,
    SentenceTranslation,
    TextTranslation,
    can_link,
)

_BLANK = re.compile(r"\s")
"""A line end, too: it ends no sentence."""

_Asked = tuple[str, bool]
"""A sentence, and whether links are asked for."""


class Service(Protocol):
    """What translates plain texts: a ``TranslationService``."""

    @property
    def limits(self) -> Limits:
        """How much one request may ask."""

    async def translate(
        self,
        texts: Sequence[str],
        options: Options,
        *,
        splitting: Splitting = "sentences",
        constrain: Constrain | None = None,
    ) -> list[TextTranslation]:
        """Translate texts, each sentence by itself."""


async def translate_marked(
    service: Service,
    texts: Sequence[MarkedText],
    options: Options,
    *,
    splitting: Splitting = "punctuation",
    constrain: Constrain | None = None,
) -> list[MarkedText]:
    """Translate texts with marks, in their order.

    Links are computed for texts with marks between words. Where a sentence is too long for links,
    or the model gives none, words at the same part of the way are partners.

    Args:
        service: Translates; its limits and errors are those of ``TranslationService.translate``.
        texts: Their blanks are kept at both ends.

    Returns:
        Spans with the marks of the source, each mark around neighbours, once. A text that the model
        repeats is the very tuple that was given.
    """
    if options.direction.translator.tokenizer.config.features is not None:
        raise InputError(
            "the model reads features after a tab, which markup and files do not keep; send "
            "plain text"
        )
    plain = [PlainText(text) for text in texts]
    # In a thread, so that a long text keeps no other client waiting.
    cut = await asyncio.to_thread(lambda: [_cut(one, options, splitting) for one in plain])
    asked = [(part.sentence, links) for parts in cut for part, links in parts if part.sentence]
    if len(asked) > service.limits.waiting:
        raise InputError(
            f"one request may have {service.limits.waiting} sentences; send fewer at a time"
        )
    found = await _translate(service, dict.fromkeys(asked), options, constrain)
    return await asyncio.to_thread(
        lambda: [_marked(*each, found) for each in zip(texts, plain, cut, strict=True)]
    )


def _cut(plain: PlainText, options: Options, splitting: Splitting) -> list[tuple[Part, bool]]:
    """The sentences of a text, and whether each needs links that the model can give."""
    # Links count words between spaces, and a tokenizer may know no other blank.
    text = _BLANK.sub(" ", plain.text)
    needed = plain.needs_links
    if options.direction.whole_lines:
        splitting = "lines"
    return [
        (part, needed and can_link(options.direction, part.sentence))
        for part in split_sentences(text, options.direction.source, splitting)
    ]


async def _translate(
    service: Service, asked: Collection[_Asked], options: Options, constrain: Constrain | None
) -> dict[_Asked, SentenceTranslation]:
    """Translate sentences, those with links and those without at the same time."""

    async def translate(links: bool) -> dict[_Asked, SentenceTranslation]:
        sentences = [sentence for sentence, wanted in asked if wanted is links]
        if not sentences:
            return {}
        results = await service.translate(
            sentences,
            replace(options, links=links, near_best=NEAR_BEST if links else None),
            splitting="none",
            constrain=constrain,
        )
        return {
            (sentence, links): result.parts[0][1]
            for sentence, result in zip(sentences, results, strict=True)
        }

    tasks = [asyncio.ensure_future(translate(links)) for links in (True, False)]
    try:
        linked, unlinked = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return linked | unlinked


def _marked(
    text: MarkedText,
    plain: PlainText,
    cut: Sequence[tuple[Part, bool]],
    found: dict[_Asked, SentenceTranslation],
) -> MarkedText:
    blank = SentenceTranslation("", "")
    parts = [(part, found.get((part.sentence, links), blank)) for part, links in cut]
    if all(is_copy(sentence) for _, sentence in parts):
        return text
    return nest(text, project(plain, TextTranslation(tuple(parts))))
