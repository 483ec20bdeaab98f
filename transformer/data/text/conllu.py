"""Tagged sentences in CoNLL-U files: words and their Universal part-of-speech tags.

Reads the columns ID, FORM and UPOS; does not know subwords or models, nor the syntax in the other
columns. Source: Universal Dependencies, "CoNLL-U Format".
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from transformer.common.errors import InputError
from transformer.data.text.parallel import read_lines

UPOS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
"""The tags that there are: Universal Dependencies 2 (de Marneffe et al. 2021, table 2)."""

_COLUMNS = 10


class TaggedSentence(NamedTuple):
    """Words (punctuation apart), and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_conllu(path: Path, max_line: int | None = None) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file, which may be gzipped; see `read_lines` for ``max_line``.

    Comments, ranges of words written as one (``1-2``) and words that are understood but not
    written (``1.1``) are passed over.

    Raises:
        InputError: the file cannot be read, or a line is malformed.
    """
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate(read_lines(path, max_line), start=1):
        if line.startswith("#"):
            continue
        if line.strip():
            word = _parsed(line, len(words) + 1, f"{path}:{number}")
            if word is not None:
                words.append(word[0])
                tags.append(word[1])
        elif words:
            yield TaggedSentence(tuple(words), tuple(tags))
            words, tags = [], []
    if words:
        yield TaggedSentence(tuple(words), tuple(tags))


def _parsed(line: str, expected: int, where: str) -> tuple[str, str] | None:
    """Return (word, tag), or None for a line that is no word of its own."""
    fields = line.split("\t")
    if len(fields) != _COLUMNS:
        raise InputError(
            f"{where}: {len(fields)} columns where CoNLL-U has {_COLUMNS}, parted by tabs; "
            "mend the line"
        )
    index, word, _, tag = fields[:4]
    first, mark, second = index.partition("-" if "-" in index else ".")
    if not _is_number(first) or (mark and not _is_number(second)):
        raise InputError(f"{where}: ID {index!r} is no word number; write 1, 1-2 or 1.1")
    if mark:
        return None
    if index.lstrip("0") != str(expected):
        raise InputError(
            f"{where}: ID {index} where {expected} comes next; number the words of a sentence "
            "from 1, and part sentences by a blank line"
        )
    if not word.strip():
        raise InputError(f"{where}: word {index} is blank; write it in the second column")
    if tag not in UPOS:
        raise InputError(
            f"{where}: UPOS {tag!r} of {word!r} is not one of {' '.join(UPOS)}; "
            "the fourth column takes Universal part-of-speech tags"
        )
    return word, tag


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
