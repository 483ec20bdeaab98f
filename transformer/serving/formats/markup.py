"""HTML and XML in, HTML and XML out: the text of the elements is translated, all else stays."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from transformer.decoding.constraints.request import Constraints
from transformer.serving.formats.blocks import Block, Rules, parse
from transformer.serving.formats.marked_text import Service, Splitting, translate_marked
from transformer.serving.formats.spans import MarkedText
from transformer.serving.languages.sentences import Part
from transformer.serving.translations import Options, SentenceTranslation, TextTranslation


async def translate_markup(
    service: Service,
    sources: Sequence[str],
    options: Options,
    rules: Rules,
    *,
    splitting: Splitting = "punctuation",
    constrain: Callable[[str], Constraints | None] | None = None,
) -> list[str]:
    """Translate HTML or XML; arguments and errors are those of ``translate_marked``."""
    # In a thread, so that a long source keeps no other client waiting.
    parsed = await asyncio.to_thread(lambda: [parse(source, rules) for source in sources])
    blocks = [part for parts in parsed for part in parts if not isinstance(part, str)]
    found = await translate_marked(
        service,
        [block.text for block in blocks],
        options,
        splitting=splitting,
        constrain=constrain,
    )
    return await asyncio.to_thread(_written, parsed, iter(found))


def _written(
    parsed: Sequence[Sequence[str | Block]], translations: Iterator[MarkedText]
) -> list[str]:
    """Each source with the translations of its blocks."""
    return [
        "".join(
            part if isinstance(part, str) else part.written(next(translations)) for part in parts
        )
        for parts in parsed
    ]


async def visible_texts(sources: Sequence[str], rules: Rules) -> list[str]:
    """What HTML or XML says, without its tags."""

    def text(source: str) -> str:
        blocks = (part.text for part in parse(source, rules) if not isinstance(part, str))
        return "\n".join("".join(s.text for s in block if not s.keep) for block in blocks)

    return await asyncio.to_thread(lambda: list(map(text, sources)))


async def translate_html(
    service: Service, sources: Sequence[str], options: Options
) -> list[TextTranslation]:
    """Translate HTML; only ``options.direction`` counts, and each result has one part."""
    found = await translate_markup(service, sources, Options(options.direction), Rules())
    return [TextTranslation(((Part("", ""), SentenceTranslation("", one)),)) for one in found]
