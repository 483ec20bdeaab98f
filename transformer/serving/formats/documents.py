"""Reads, translates and writes files of all formats, which their extensions tell.

Plain text, HTML and subtitles (SubRip) are UTF-8; a byte order mark and line ends stay. Plain text
is cut at line ends and tabs. The lines of a cue of subtitles are one text, and its translation gets
as many lines; a line with a dash is of another speaker, and a text alone. Tags of formatting are
marks.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from transformer.common.errors import InputError
from transformer.serving.batch_translation import Options
from transformer.serving.formats.marked_text import Translate, translate_marked
from transformer.serving.formats.markup import Block, Rules, parse, written
from transformer.serving.formats.office import OfficeDocument
from transformer.serving.formats.tag_projection import Mark, MarkedText, Span, write_tagged
from transformer.serving.micro_batching import QueueFull

_PART_CHARACTERS = 4000
_PART_TEXTS = 100
"""Sizes of a part: enough for full batches, and short enough for other clients."""

_TIMES = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d+\s*-->\s*\d+:\d\d:\d\d[,.]\d+")
_TAG = re.compile(r"<(/?)([ibus]|font)\b[^<>]*>|\{\\[^{}]*\}", re.IGNORECASE)
_WORD = re.compile(r"(?:<[^<>]*>|[^ ])+")
_DEEPEST = 10
"""Nested tags; each span names all tags around it."""
_DASH = re.compile(r"\s*[-\u2013\u2014]\s*")


class TextFile:
    """A UTF-8 file whose texts can be replaced; ``parse`` finds them, and the text between them."""

    def __init__(self, data: bytes, parse: Callable[[str], list[str | Block]]) -> None:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"the file is not UTF-8 ({error}); convert it to UTF-8") from error
        body = text.removeprefix("\ufeff")
        self._parts = [text[: len(text) - len(body)], *parse(body)]
        self.texts = [part.text for part in self._parts if isinstance(part, Block)]

    def write(self, translations: Sequence[MarkedText]) -> bytes:
        return written(self._parts, iter(translations)).encode()


_html = partial(parse, rules=Rules())


def _lines(text: str) -> list[str | Block]:
    return [
        Block(part, (Span(part),), write_tagged) if any(map(str.isalpha, part)) else part
        for part in re.split(r"([\r\n\t]+)", text)
    ]


def _subtitles(text: str) -> list[str | Block]:
    newline = "\r\n" if "\r\n" in text else "\n"
    parts: list[str | Block] = []
    for lines, is_text in _cues(text.replace("\r\n", "\n").split("\n")):
        source = newline.join(lines)
        parts += [newline, _cue(source, lines, newline) if is_text else source]
    return parts[1:]


def _cue(source: str, lines: Sequence[str], newline: str) -> Block:
    joined = " ".join(lines)
    start = _dash_end(lines[0])

    def write(translation: MarkedText) -> str:
        text = joined[:start] + write_tagged(translation)
        return newline.join(_broken(text, len(lines)))

    return Block(source, _marked(joined[start:]), write)


def _dash_end(line: str) -> int:
    """The length of a dash at the start of a line, with its blanks."""
    dash = _DASH.match(line)
    return dash.end() if dash else 0


def _cues(lines: Sequence[str]) -> Iterator[tuple[list[str], bool]]:
    """Lines that stay together, and whether they are a text."""
    text: list[str] = []
    in_cue = False
    for line in lines:
        if text and (not line.strip() or _dash_end(line) or _dash_end(text[0])):
            yield text, True
            text = []
        if in_cue and line.strip():
            text.append(line)
            continue
        in_cue = bool(_TIMES.match(line))
        yield [line], False
    if text:
        yield text, True


def _marked(text: str) -> MarkedText:
    """The text with tags as marks; a tag without a partner, or nested too deeply, has no text."""
    tags = list(_TAG.finditer(text))
    closing: dict[int, re.Match[str]] = {}
    opened: list[re.Match[str]] = []
    for tag in tags:
        if tag[2] and not tag[1]:
            opened.append(tag)
            if len(opened) > _DEEPEST:
                closing = {}
                break
        elif tag[2] and opened and opened[-1][2].lower() == tag[2].lower():
            closing[opened.pop().start()] = tag
    closed = {tag.start() for tag in closing.values()}
    spans: list[Span] = []
    marks: tuple[Mark, ...] = ()
    end = 0
    for tag in tags:
        if tag.start() > end:
            spans.append(Span(text[end : tag.start()], marks))
        end = tag.end()
        if tag.start() in closing:
            marks = (*marks, Mark((tag[0], closing[tag.start()][0])))
        elif tag.start() in closed:
            if not spans or marks[-1] not in spans[-1].marks:
                spans.append(Span("", marks))
            marks = marks[:-1]
        else:
            spans.append(Span("", (*marks, Mark((tag[0], "")))))
    return (*spans, Span(text[end:])) if end < len(text) else tuple(spans)


def _broken(text: str, lines: int) -> list[str]:
    words = _WORD.findall(text)
    sizes = [len(_TAG.sub("", word)) + 1 for word in words]
    whole = sum(sizes)
    broken: list[list[str]] = [[] for _ in range(lines)]
    before = 0
    for word, size in zip(words, sizes, strict=True):
        broken[int((before + size / 2) / whole * lines)].append(word)
        before += size
    return [" ".join(line) for line in broken if line]


Document = TextFile | OfficeDocument
"""A file whose ``texts`` are translated, and given to ``write``."""

FORMATS: Mapping[str, Callable[[bytes, int], Document]] = {
    ".txt": lambda data, _: TextFile(data, _lines),
    ".html": lambda data, _: TextFile(data, _html),
    ".htm": lambda data, _: TextFile(data, _html),
    ".srt": lambda data, _: TextFile(data, _subtitles),
    ".docx": partial(OfficeDocument, extension=".docx"),
    ".odt": partial(OfficeDocument, extension=".odt"),
}
"""Readers by extension; their number is the limit of bytes."""


async def translate_document(
    translate: Translate,
    document: Document,
    options: Options,
    thread: Executor,
    *,
    patient: bool = False,
) -> bytes:
    """Translate a document in parts; ``thread`` writes it. If ``patient``, wait while busy."""
    translations: list[MarkedText] = []
    for part in _parts(document.texts):
        while True:
            try:
                translated = await translate_marked(translate, part, options)
                translations += [one.text for one in translated]
                break
            except (QueueFull, TimeoutError):
                if not patient:
                    raise
                await asyncio.sleep(1)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(thread, document.write, translations)


def _parts(texts: Sequence[MarkedText]) -> Iterator[list[MarkedText]]:
    part: list[MarkedText] = []
    size = 0
    for text in texts:
        part.append(text)
        size += sum(len(span.text) for span in text)
        if size >= _PART_CHARACTERS or len(part) == _PART_TEXTS:
            yield part
            part = []
            size = 0
    yield part
