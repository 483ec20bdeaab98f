"""Files of all formats: read, translated a part at a time, and written.

It does not know HTTP. The name of a file tells its format, and nothing else.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Protocol, runtime_checkable

from transformer.decoding.constraints.request import Constraints
from transformer.serving.formats.documents.office import OfficeDocument
from transformer.serving.formats.documents.subtitles import Subtitles
from transformer.serving.formats.documents.text_files import HtmlFile, TextFile
from transformer.serving.formats.marked_text import Service, translate_marked
from transformer.serving.formats.spans import MarkedText, PlainText
from transformer.serving.micro_batching import QueueFull
from transformer.serving.translations import Options

_CHARACTERS, _TEXTS = 4000, 100
"""That wait together: enough for full batches, and not in the way of others for long."""


@runtime_checkable
class Document(Protocol):
    """A file whose texts can be replaced."""

    texts: list[MarkedText]

    def write(self, translations: Sequence[MarkedText]) -> bytes:
        """The file with the translation of each text in its place."""


FORMATS: Mapping[str, Callable[[bytes, int], Document]] = {
    ".txt": lambda data, _: TextFile(data),
    ".html": lambda data, _: HtmlFile(data),
    ".htm": lambda data, _: HtmlFile(data),
    ".srt": lambda data, _: Subtitles(data),
    ".docx": lambda data, most_bytes: OfficeDocument(data, ".docx", most_bytes),
    ".odt": lambda data, most_bytes: OfficeDocument(data, ".odt", most_bytes),
}
"""By the extension; the number is that of the bytes of the text at most."""


def plain_texts(document: Document) -> list[str]:
    """The texts without their marks."""
    return [PlainText(text).text for text in document.texts]


async def translate_document(
    service: Service,
    document: Document,
    options: Options,
    *,
    constrain: Callable[[str], Constraints | None] | None = None,
    patient: bool = False,
    thread: Executor | None = None,
) -> bytes:
    """Translate a document, some texts at a time.

    The arguments and errors are those of ``translate_marked``.

    Args:
        patient: Try again when the server is busy, as long as it takes.
        thread: That writes the document; None takes one of those of asyncio.
    """
    translations: list[MarkedText] = []
    for part in _parts(document.texts):
        while True:
            try:
                translations += await translate_marked(service, part, options, constrain=constrain)
                break
            except (QueueFull, TimeoutError):
                if not patient:
                    raise
                await asyncio.sleep(1)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(thread, document.write, translations)


def _parts(texts: Sequence[MarkedText]) -> Iterator[list[MarkedText]]:
    """Neighbouring texts that wait together."""
    part: list[MarkedText] = []
    size = 0
    for text in texts:
        part.append(text)
        size += sum(len(span.text) for span in text)
        if size >= _CHARACTERS or len(part) == _TEXTS:
            yield part
            part, size = [], 0
    if part:
        yield part
