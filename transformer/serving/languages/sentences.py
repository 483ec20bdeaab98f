"""Cuts a text into sentences so that it can be put together again with its own blanks.

``sentencex`` (Wikimedia) finds the ends of sentences; a line end always ends one.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

Splitting = Literal["sentences", "punctuation", "lines", "none"]
"""Where a text is cut: at the ends of sentences and lines, of sentences, of lines, or nowhere."""


class Part(NamedTuple):
    """A sentence, which may be empty at the end of a text, and the blanks before it."""

    blanks: str
    sentence: str


def split_sentences(text: str, language: str, splitting: Splitting) -> list[Part]:
    """The parts of a text; joined, they are the text.

    Args:
        text: Any text.
        language: Its code, such as ``en``; an unknown one has the rules of English.
        splitting: Where to cut.
    """
    chunks = [text] if splitting == "none" else list(_chunks(text, language, splitting))
    parts, pending = [], ""
    for chunk in chunks:
        sentence = chunk.strip()
        if sentence:
            start = len(chunk) - len(chunk.lstrip())
            parts.append(Part(pending + chunk[:start], sentence))
            pending = chunk[start + len(sentence) :]
        else:
            pending += chunk
    return [*parts, Part(pending, "")] if pending else parts


def _chunks(text: str, language: str, splitting: Splitting) -> Iterator[str]:
    lines = [text] if splitting == "punctuation" else text.splitlines(keepends=True)
    if splitting == "lines":
        yield from lines
        return
    import sentencex

    for line in lines:
        yield from sentencex.segment(language.partition("-")[0], line) if line.strip() else [line]
