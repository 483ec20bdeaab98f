"""Cuts a text into sentences and the blanks between them, without loss.

``sentencex`` (Wikimedia) finds the ends of sentences; a line end ends a sentence, too. A sentence
longer than ``LONGEST`` is cut at a blank, so that no text blocks the others for long.
"""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Literal, NamedTuple

from transformer.decoding.long_inputs import find_sentences

Splitting = Literal["sentences", "punctuation", "lines", "none"]
"""Where a text is cut: at the ends of sentences and lines, of sentences, of lines, or nowhere."""

LONGEST = 1000
"""Characters of a sentence."""

_OTHER_BLANK = re.compile(r"\r\n|[^\S ]|\ufeff")


class Part(NamedTuple):
    """A sentence, which may be empty at the end of a text, and the blanks before it."""

    blanks: str
    sentence: str


def split_sentences(text: str, language: str, splitting: Splitting) -> list[Part]:
    """The parts of a text, whose concatenation is the text."""
    if splitting == "lines":
        chunks = re.split(r"(?<=\n)", text)
    else:
        whole = [text] if splitting == "none" else _chunks(text, language, splitting)
        chunks = list(chain.from_iterable(map(_short, whole)))
    parts = []
    pending = ""
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
    for line in [text] if splitting == "punctuation" else text.splitlines(keepends=True):
        yield from find_sentences(line, language) if line.strip() else [line]


def _short(chunk: str) -> Iterator[str]:
    """A chunk in parts of at most ``LONGEST`` characters, which end at a blank if there is one."""
    start = 0
    while len(chunk) - start > LONGEST:
        end = start + LONGEST
        blank = max(chunk.rfind(" ", start, end), chunk.rfind("\n", start, end))
        cut = end if blank < start else blank + 1
        yield chunk[start:cut]
        start = cut
    yield chunk[start:]


def plain_blanks(sentence: str) -> str:
    """A sentence with letters gets spaces for other blanks, line ends too: few models know them."""
    return _OTHER_BLANK.sub(" ", sentence) if any(map(str.isalpha, sentence)) else sentence
