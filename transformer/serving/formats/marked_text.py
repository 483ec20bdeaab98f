"""Translates texts with marks, HTML and XML, by word links: each mark is once in the result."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, NamedTuple

from transformer.common.errors import InputError
from transformer.serving.batch_translation import (
    Options,
    SentenceTranslation,
    TextTranslation,
    can_link,
)
from transformer.serving.formats.markup import Rules, parse, written
from transformer.serving.formats.tag_projection import (
    NEAR_BEST,
    MarkedText,
    PlainText,
    is_copy,
    nest,
    project,
)
from transformer.serving.sentences import Part, Splitting, split_sentences

_BLANK = re.compile(r"\s")
"""Line ends included: they end no sentence."""

Translate = Callable[[Sequence[str], Options], Coroutine[Any, Any, list[TextTranslation]]]

_Asked = tuple[str, bool]
"""A sentence, and whether it needs links."""


class MarkedTranslation(NamedTuple):
    """A translation with marks, and the failures of its sentences."""

    text: MarkedText
    flags: tuple[str, ...]


async def translate_marked(
    translate: Translate, texts: Sequence[MarkedText], options: Options
) -> list[MarkedTranslation]:
    """Translate texts; each mark is once in a translation, around neighbors.

    Texts with marks between words need links. If a sentence is too long for links, or the model
    gives none, words at the same relative position are linked. For a text that the model repeats,
    the result is the given tuple itself.
    """
    if options.direction.translator.tokenizer.config.features is not None:
        raise InputError(
            "the model reads features after a tab, which markup and files do not keep; send "
            "plain text"
        )
    plain = [PlainText(text) for text in texts]
    # In a thread: a long text must not block other clients.
    parts_of_texts = await asyncio.to_thread(lambda: [_split(text, options) for text in plain])
    asked = [
        (part.sentence, links) for parts in parts_of_texts for part, links in parts if part.sentence
    ]
    translations = await _translate(translate, asked, options)
    return await asyncio.to_thread(
        lambda: [
            _marked(text, plain_text, parts, translations)
            for text, plain_text, parts in zip(texts, plain, parts_of_texts, strict=True)
        ]
    )


def _split(plain: PlainText, options: Options) -> list[tuple[Part, bool]]:
    """The sentences of a text, and whether each needs links that the model can give."""
    # Links count words between spaces; a tokenizer may know no other blank.
    text = _BLANK.sub(" ", plain.text)
    needed = plain.needs_links
    splitting: Splitting = "none" if options.splitting == "none" else "punctuation"
    if options.direction.whole_lines:
        splitting = "lines"
    return [
        (part, needed and can_link(options.direction, part.sentence))
        for part in split_sentences(text, options.direction.source, splitting)
    ]


async def _translate(
    translate: Translate, asked: Sequence[_Asked], options: Options
) -> dict[_Asked, SentenceTranslation]:
    async def translated(links: bool) -> dict[_Asked, SentenceTranslation]:
        sentences = [sentence for sentence, wanted in asked if wanted is links]
        near_best = NEAR_BEST if links else None
        changed = replace(options, links=links, near_best=near_best, splitting="none")
        results = await translate(sentences, changed) if sentences else []
        pairs = zip(sentences, results, strict=True)
        return {(sentence, links): result.parts[0][1] for sentence, result in pairs}

    tasks = [asyncio.ensure_future(translated(links)) for links in (True, False)]
    try:
        linked, unlinked = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return linked | unlinked


def _marked(
    text: MarkedText,
    plain: PlainText,
    parts: Sequence[tuple[Part, bool]],
    translations: dict[_Asked, SentenceTranslation],
) -> MarkedTranslation:
    blank = SentenceTranslation("", "")
    translated = TextTranslation(
        tuple((part, translations.get((part.sentence, links), blank)) for part, links in parts)
    )
    flags = tuple(translated.flags)
    if all(is_copy(sentence) for _, sentence in translated.parts):
        return MarkedTranslation(text, flags)
    return MarkedTranslation(nest(text, project(plain, translated)), flags)


async def visible_texts(sources: Sequence[str], rules: Rules | None) -> Sequence[str]:
    """The text of HTML or XML without its tags; without rules, the sources."""
    if rules is None:
        return sources

    def text(source: str) -> str:
        blocks = (part for part in parse(source, rules) if not isinstance(part, str))
        return "\n".join(PlainText(block.text).text for block in blocks)

    return await asyncio.to_thread(lambda: list(map(text, sources)))


async def translate_texts(
    translate: Translate, texts: Sequence[str], options: Options, rules: Rules | None
) -> list[TextTranslation]:
    """Translate texts, plain ones without rules; the result of markup has a single part."""
    if rules is None:
        return await translate(texts, options)
    # In a thread: a long source must not block other clients.
    parsed = await asyncio.to_thread(lambda: [parse(text, rules) for text in texts])
    blocks = [[part.text for part in parts if not isinstance(part, str)] for parts in parsed]
    plain = Options(options.direction, splitting=options.splitting, constrain=options.constrain)
    rest = iter(await translate_marked(translate, list(chain.from_iterable(blocks)), plain))
    translations = [list(islice(rest, len(of_source))) for of_source in blocks]

    def write() -> Iterator[SentenceTranslation]:
        for parts, of_source in zip(parsed, translations, strict=True):
            text = written(parts, iter([translation.text for translation in of_source]))
            flags = dict.fromkeys(chain.from_iterable(one.flags for one in of_source))
            yield SentenceTranslation("", text, flags=tuple(flags))

    return [
        TextTranslation(((Part("", ""), sentence),))
        for sentence in await asyncio.to_thread(lambda: list(write()))
    ]
