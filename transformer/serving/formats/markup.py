"""HTML and XML in, HTML and XML out: the text of the elements is translated, all else stays."""

import asyncio
from collections.abc import Sequence

from transformer.serving.formats.blocks import Rules, parse, written
from transformer.serving.formats.marked_text import Service, translate_marked
from transformer.serving.formats.spans import PlainText
from transformer.serving.languages.sentences import Part, Splitting
from transformer.serving.translations import (
    Constrain,
    Options,
    SentenceTranslation,
    TextTranslation,
)


async def translate_markup(
    service: Service,
    sources: Sequence[str],
    options: Options,
    rules: Rules,
    *,
    splitting: Splitting = "punctuation",
    constrain: Constrain | None = None,
) -> list[str]:
    """Translate HTML or XML; arguments and errors are those of ``translate_marked``."""
    # In a thread, so that a long source keeps no other client waiting.
    parsed = await asyncio.to_thread(lambda: [parse(source, rules) for source in sources])
    blocks = [part for parts in parsed for part in parts if not isinstance(part, str)]
    texts = [block.text for block in blocks]
    found = await translate_marked(
        service, texts, options, splitting=splitting, constrain=constrain
    )
    rest = iter(found)
    return await asyncio.to_thread(lambda: [written(parts, rest) for parts in parsed])


async def visible_texts(sources: Sequence[str], rules: Rules) -> list[str]:
    """What HTML or XML says, without its tags."""

    def text(source: str) -> str:
        blocks = (part for part in parse(source, rules) if not isinstance(part, str))
        return "\n".join(PlainText(block.text).text for block in blocks)

    return await asyncio.to_thread(lambda: list(map(text, sources)))


async def translate_html(
    service: Service, sources: Sequence[str], options: Options
) -> list[TextTranslation]:
    """Translate HTML; only ``options.direction`` counts, and each result has one part."""
    found = await translate_markup(service, sources, Options(options.direction), Rules())
    return [TextTranslation(((Part("", ""), SentenceTranslation("", one)),)) for one in found]
