"""Subtitles (SubRip, .srt): the text of a cue is translated, its number and times stay.

The lines of a cue are one text, which is cut again into as many lines of like length; a line with
a dash is of another speaker, and a text of its own. Tags of formatting are marks.
"""

import re
from collections.abc import Iterator, Sequence

from transformer.common.errors import InputError
from transformer.serving.formats.documents.text_files import decode_utf8
from transformer.serving.formats.spans import Mark, MarkedText, Span, write_tagged

_TIMES = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d+\s*-->\s*\d+:\d\d:\d\d[,.]\d+")
_TAG = re.compile(r"<(/?)([ibus]|font)\b[^<>]*>|\{\\[^{}]*\}", re.IGNORECASE)
_WORD = re.compile(r"(?:<[^<>]*>|[^ ])+")
_DEEPEST = 10
"""Tags inside each other; each span names all that are around it."""
_DASH = re.compile(r"\s*[-\u2013\u2014]\s*")


class Subtitles:
    """Cues whose texts can be replaced.

    Raises:
        InputError: There is no cue, or it is not UTF-8.
    """

    def __init__(self, data: bytes) -> None:
        self._mark, text = decode_utf8(data)
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._blocks = list(_blocks(text.replace("\r\n", "\n").split("\n")))
        if not any(is_text for _, is_text in self._blocks):
            raise InputError("the file is no .srt subtitles: it has no line 00:00:01,000 --> …")
        self.texts: list[MarkedText] = [
            _marked(" ".join(lines)[_dash_end(lines[0]) :])
            for lines, is_text in self._blocks
            if is_text
        ]

    def write(self, translations: Sequence[MarkedText]) -> bytes:
        """The file with translations of its texts; equal ones keep their lines."""
        pairs = zip(self.texts, translations, strict=True)
        lines: list[str] = []
        for block, is_text in self._blocks:
            source, translation = next(pairs) if is_text else ((), ())
            if source != translation:
                dash = block[0][: _dash_end(block[0])]
                block = _broken(dash + write_tagged(translation), len(block))
            lines += block
        return self._mark + self._newline.join(lines).encode()


def _dash_end(line: str) -> int:
    """The length of the dash that begins a line, with its blanks."""
    dash = _DASH.match(line)
    return dash.end() if dash else 0


def _blocks(lines: Sequence[str]) -> Iterator[tuple[list[str], bool]]:
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
    """The text with its tags as marks; a tag without its other half is a thing without text.

    All tags are such things if they nest too deeply.
    """
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
    """The words of a text in as many lines; each goes where its middle is."""
    words = _WORD.findall(text)
    sizes = [len(_TAG.sub("", word)) + 1 for word in words]
    whole = sum(sizes)
    broken: list[list[str]] = [[] for _ in range(lines)]
    before = 0
    for word, size in zip(words, sizes, strict=True):
        broken[int((before + size / 2) / whole * lines)].append(word)
        before += size
    return [" ".join(line) for line in broken if line]
