"""Translates texts with marks: each mark of the source is once in the translation.

The marks are taken out, the plain text is translated, and each mark goes around the words that its
words became, by word links. Marks of the translation nest as those of the source do.

It does not know what a mark is.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from transformer.decoding.constraints.request import Constraints
from transformer.serving.formats.nesting import nest
from transformer.serving.formats.projection import NEAR_BEST, is_copy, project
from transformer.serving.formats.spans import MarkedText, PlainText, Span
from transformer.serving.languages.sentences import Splitting, split_sentences
from transformer.serving.translations import Options, TextTranslation, can_link

_BLANKS = str.maketrans("\n\r\t\f", "    ")


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

    Links are computed for texts with marks between words. Where a sentence is too long for links,
    or the model gives none, words at the same part of the way are partners.

    Args:
        service: Translates; its limits and errors are those of ``TranslationService.translate``.
        texts: Their blanks are kept at both ends.
        options: What is asked.
        splitting: Where texts are cut into sentences. A line end is a blank, unless it is cut at.
        constrain: The constraints of the translation of a sentence.

    Returns:
        Spans with the marks of the source, each mark around neighbours, once. A text that the model
        repeats is the very tuple that was given.
    """
    plain = [PlainText(text) for text in texts]
    # In a thread, so that a long text keeps no other client waiting.
    linked = await asyncio.to_thread(
        lambda: [one.needs_links and _can_link(one.text, options, splitting) for one in plain]
    )
    found: dict[int, TextTranslation] = {}

    async def translate(links: bool) -> None:
        indices = [index for index, given in enumerate(linked) if given is links]
        if indices:
            results = await service.translate(
                [_one_line(plain[index].text, splitting) for index in indices],
                replace(options, links=links, near_best=NEAR_BEST if links else None),
                splitting=splitting,
                constrain=constrain,
            )
            found.update(zip(indices, results, strict=True))

    tasks = [asyncio.ensure_future(translate(links)) for links in (True, False)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return await asyncio.to_thread(
        lambda: [_marked(text, plain[index], found[index]) for index, text in enumerate(texts)]
    )


def _one_line(text: str, splitting: Splitting) -> str:
    return text if splitting in ("sentences", "lines") else text.translate(_BLANKS)


def _can_link(text: str, options: Options, splitting: Splitting) -> bool:
    parts = split_sentences(_one_line(text, splitting), options.direction.source, splitting)
    return can_link(options.direction, [part.sentence for part in parts])


def _marked(text: MarkedText, plain: PlainText, found: TextTranslation) -> MarkedText:
    if all(is_copy(part.sentence, sentence.text) for part, sentence in found.parts):
        return text
    if not plain.kept and len({span.marks for span in text}) == 1:
        return (Span(found.text, text[0].marks),)
    return nest(text, project(plain, found))
