"""Translates the text in HTML and XML; all else stays."""

import asyncio
from collections.abc import Sequence

from transformer.serving.formats.blocks import Rules, parse, written
from transformer.serving.formats.marked_text import Service, translate_marked
from transformer.serving.formats.spans import PlainText
from transformer.serving.languages.sentences import Part
from transformer.serving.translations import Options, SentenceTranslation, TextTranslation


async def translate_markup(
    service: Service, sources: Sequence[str], options: Options, rules: Rules
) -> list[str]:
    """Translate HTML or XML; arguments and errors are those of ``translate_marked``."""
    # In a thread: a long source must not block other clients.
    parsed = await asyncio.to_thread(lambda: [parse(source, rules) for source in sources])
    texts = [part.text for parts in parsed for part in parts if not isinstance(part, str)]
    rest = iter(await translate_marked(service, texts, options))
    return await asyncio.to_thread(lambda: [written(parts, rest) for parts in parsed])


async def visible_texts(sources: Sequence[str], rules: Rules) -> list[str]:
    """The text of HTML or XML without its tags."""

    def text(source: str) -> str:
        blocks = (part for part in parse(source, rules) if not isinstance(part, str))
        return "\n".join(PlainText(block.text).text for block in blocks)

    return await asyncio.to_thread(lambda: list(map(text, sources)))


async def translate_html(
    service: Service, sources: Sequence[str], options: Options
) -> list[TextTranslation]:
    """Translate HTML by ``options.direction`` alone; each result has one part."""
    found = await translate_markup(service, sources, Options(options.direction), Rules())
    return [TextTranslation(((Part("", ""), SentenceTranslation("", one)),)) for one in found]
