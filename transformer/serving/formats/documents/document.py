"""Reads, translates and writes files of all formats, which their extensions tell."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from transformer.serving.formats.documents.office import OfficeDocument
from transformer.serving.formats.documents.text_files import (
    TextFile,
    parse_html,
    parse_lines,
    parse_subtitles,
)
from transformer.serving.formats.marked_text import Service, translate_marked
from transformer.serving.formats.spans import MarkedText
from transformer.serving.micro_batching import QueueFull
from transformer.serving.translations import Options

_CHARACTERS, _TEXTS = 4000, 100
"""Sizes of a part: enough for full batches, and short enough for other clients."""

Document = TextFile | OfficeDocument
"""A file whose ``texts`` are translated, and given to ``write``."""

FORMATS: Mapping[str, Callable[[bytes, int], Document]] = {
    ".txt": lambda data, _: TextFile(data, parse_lines),
    ".html": lambda data, _: TextFile(data, parse_html),
    ".htm": lambda data, _: TextFile(data, parse_html),
    ".srt": lambda data, _: TextFile(data, parse_subtitles),
    **{one: partial(OfficeDocument, extension=one) for one in (".docx", ".odt")},
}
"""Readers by extension; their number is the limit of bytes."""


async def translate_document(
    service: Service,
    document: Document,
    options: Options,
    thread: Executor,
    *,
    patient: bool = False,
) -> bytes:
    """Translate a document, some texts at a time; ``thread`` writes it.

    Errors are those of ``translate_marked``; with ``patient``, it waits for a busy server.
    """
    translations: list[MarkedText] = []
    for part in _parts(document.texts):
        while True:
            try:
                translations += await translate_marked(service, part, options)
                break
            except (QueueFull, TimeoutError):
                if not patient:
                    raise
                await asyncio.sleep(1)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(thread, document.write, translations)


def _parts(texts: Sequence[MarkedText]) -> Iterator[list[MarkedText]]:
    """Neighbouring texts that are translated together."""
    part: list[MarkedText] = []
    size = 0
    for text in texts:
        part.append(text)
        size += sum(len(span.text) for span in text)
        if size >= _CHARACTERS or len(part) == _TEXTS:
            yield part
            part, size = [], 0
    yield part
