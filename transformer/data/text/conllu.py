"""Reads tagged sentences from CoNLL-U files: words and their Universal part-of-speech tags.

Reads the columns ID, FORM and UPOS; does not know subwords, models or syntax. Source: Universal
Dependencies, "CoNLL-U Format".
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from transformer.common.errors import InputError
from transformer.data.text.parallel import read_lines

UPOS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
"""All tags: Universal Dependencies 2 (de Marneffe et al. 2021, table 2)."""

_COLUMNS = 10
# A word, a range of words written as one, or a word that is not written.
_ID = re.compile(r"(\d+)([-.]\d+)?", re.ASCII)


class TaggedSentence(NamedTuple):
    """Words (punctuation marks too), and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_conllu(path: Path, max_line: int | None = None) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file, which may be gzipped; see `read_lines` for ``max_line``.

    Skips comments, ranges of words written as one (``1-2``) and words that are not written
    (``1.1``). Raises InputError if the file cannot be read, or a line is malformed.
    """
    words: list[tuple[str, str]] = []
    for number, line in enumerate(read_lines(path, max_line), start=1):
        if line.startswith("#"):
            continue
        if line.strip():
            words += _parsed(line, len(words) + 1, f"{path}:{number}")
        elif words:
            yield TaggedSentence(*zip(*words, strict=True))
            words = []
    if words:
        yield TaggedSentence(*zip(*words, strict=True))


def _parsed(line: str, expected: int, where: str) -> list[tuple[str, str]]:
    """Return [(word, tag)], or nothing for a line that is not a word of its own."""
    fields = line.split("\t")
    if len(fields) != _COLUMNS:
        raise InputError(
            f"{where}: {len(fields)} columns where CoNLL-U has {_COLUMNS}, separated by tabs; "
            "correct the line"
        )
    index, word, _, tag = fields[:4]
    match = _ID.fullmatch(index)
    if match and match[2]:
        return []
    if not match or index.lstrip("0") != str(expected):
        raise InputError(
            f"{where}: ID {index!r} where {expected} comes next; number the words of a sentence "
            "from 1 (1-2 or 1.1 is skipped), and separate sentences by a blank line"
        )
    if not word.strip() or tag not in UPOS:
        raise InputError(
            f"{where}: word {word!r} with UPOS {tag!r}; the second column is a word, the fourth "
            f"one of {' '.join(UPOS)}"
        )
    return [(word, tag)]
