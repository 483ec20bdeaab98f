"""Reads words and tags of CoNLL-U files (Universal Dependencies): columns ID, FORM and UPOS."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from transformer.common.errors import InputError
from transformer.data.text.parallel import read_lines

UPOS = (
    "ADJ",
    "ADP",
    "ADV",
    "AUX",
    "CCONJ",
    "DET",
    "INTJ",
    "NOUN",
    "NUM",
    "PART",
    "PRON",
    "PROPN",
    "PUNCT",
    "SCONJ",
    "SYM",
    "VERB",
    "X",
)
"""All tags: Universal Dependencies 2 (de Marneffe et al. 2021, table 2)."""

_COLUMNS = 10
# A range of words written as one, or a word that is not written.
_SKIPPED = re.compile(r"\d+[-.]\d+", re.ASCII)


class TaggedSentence(NamedTuple):
    """Words (punctuation marks too), and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_conllu(path: Path, max_line: int | None = None) -> Iterator[TaggedSentence]:
    """Yield sentences; skips words written as one (``1-2``) and not written (``1.1``)."""
    words: list[tuple[str, str]] = []
    for number, line in enumerate(chain(read_lines(path, max_line), [""]), start=1):
        if line.strip() and not line.startswith("#"):
            words += _parsed(line, len(words) + 1, f"{path}:{number}")
        elif words and not line.startswith("#"):
            yield TaggedSentence(*zip(*words, strict=True))
            words = []


def _parsed(line: str, expected: int, where: str) -> list[tuple[str, str]]:
    """Return [(word, tag)], or nothing for a line that is not a word of its own."""
    fields = line.split("\t")
    if len(fields) == _COLUMNS:
        index, word, _, tag = fields[:4]
        if _SKIPPED.fullmatch(index):
            return []
        if index.lstrip("0") == str(expected) and word.strip() and tag in UPOS:
            return [(word, tag)]
    raise InputError(
        f"{where}: {line!r:.60} is not word {expected} of a sentence; write {_COLUMNS} columns "
        f"separated by tabs, the first {expected}, the second a word, the fourth one of "
        f"{' '.join(UPOS)}, and a blank line after a sentence"
    )
