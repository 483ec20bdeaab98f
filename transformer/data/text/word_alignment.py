"""Links of words: ``0-2`` joins source word 0 to target word 2 (Koehn 2004, "Pharaoh")."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from transformer.common.errors import InputError
from transformer.data.text.lines import read_lines
from transformer.data.tokenization.normalization import WORD_START, normalize
from transformer.data.tokenization.tags import is_tag

Link = tuple[int, int]
"""(source word, target word), counted from 0."""
Links = frozenset[Link]

_LINK = re.compile(r"(\d{1,9})([-p])(\d{1,9})", re.ASCII)
NO_WORD = -1
"""Number of no word: a tag belongs to no word."""

# Bytes that separate words: the translator turns a line end into a space.
_SPACES = ("<0x20>", "<0x0A>")


class WordLinks(NamedTuple):
    """The links of one sentence pair (Och and Ney 2003, section 5.1)."""

    sure: Links
    """``3-4``: certain links."""
    possible: Links
    """``3p4``: uncertain links, and the sure ones."""


def parse_links(line: str, where: str, words: Sequence[int]) -> WordLinks:
    """Read links such as ``0-0 1-2 2p2``; ``words`` are the numbers of words of both sides.

    Raises InputError for text that is no link of two words.
    """
    sure: set[Link] = set()
    possible: set[Link] = set()
    for text in line.split():
        match = _LINK.fullmatch(text)
        link = (int(match[1]), int(match[3])) if match else (0, 0)
        if match is None or link[0] >= words[0] or link[1] >= words[1]:
            raise InputError(
                f"{where}: {text!r} is not a link of two words; write SOURCE-TARGET, as in 0-0 1-2:"
                f" numbers from 0, below the number of words (here {words[0]} and {words[1]})"
            )
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return WordLinks(frozenset(sure), frozenset(possible))


def format_links(links: Iterable[Link]) -> str:
    """Return links in the format of Pharaoh, in the order of the source."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_links(
    path: Path,
    pairs: Iterable[tuple[str, str]],
    max_line: int | None = None,
    features: str | None = None,
) -> Iterator[WordLinks]:
    """Yield the links of each pair of a text, line by line; see `read_lines` for ``max_line``.

    ``features`` separates those of a source, which are words after its text.
    """
    lines = read_lines(path, max_line)
    texts = iter(pairs)
    for number, (line, pair) in enumerate(zip_longest(lines, texts), start=1):
        if line is None or pair is None:
            links = number - (line is None) + sum(1 for _ in lines)
            count = number - (pair is None) + sum(1 for _ in texts)
            raise InputError(
                f"{path} has {links:,} lines of links for {count:,} sentence pairs; "
                "give one line a pair, blank if nothing is linked"
            )
        source, target = pair
        words = word_count(source, features), word_count(target)
        yield parse_links(line, f"{path}:{number}", words)


def word_count(text: str, features: str | None = None) -> int:
    """Return the number of words of a raw text, and of what ``features`` separates after a tab."""
    if features is not None and "\t" in text:
        text, _, names = text.partition("\t")
        return word_count(text) + len(names.split(features))
    words = normalize(text)
    return words.count(" ") + 1 if words else 0


def subword_words(subwords: Sequence[str]) -> list[int]:
    """Return the number of the word, from 0, of each subword, as spelled in the vocabulary.

    A search may output subwords that no segmentation has. Then a subword without letters belongs
    to its neighbor. A subword of several words has the number of the first. A tag has NO_WORD, and
    ends a word.
    """
    words: list[int] = []
    word = -1
    inside = False
    for subword in subwords:
        if is_tag(subword):
            words.append(NO_WORD)
            inside = False
            continue
        inside = inside and not subword.startswith(WORD_START) and subword not in _SPACES
        if not inside and subword != WORD_START and subword not in _SPACES:
            word += 1
            inside = True
        words.append(word if inside else word + 1)
        letters = subword.strip(WORD_START)
        word += letters.count(WORD_START)
        # Byte pairs with a suffix mark the end of a word.
        inside = inside and not (letters and subword.endswith(WORD_START))
    return [min(index, word) for index in words]


def linked_subwords(
    links: Int[np.ndarray, "link 2"], source_words: Sequence[int], target_words: Sequence[int]
) -> Bool[np.ndarray, "target source"]:
    """Link every subword of a source word to every subword of a target word linked to it."""
    # The last row and column are NO_WORD, which has no links. A linked word may have no subwords.
    shape = (
        max((*target_words, *links[:, 1]), default=-1) + 2,
        max((*source_words, *links[:, 0]), default=-1) + 2,
    )
    table = np.zeros(shape, dtype=bool)
    table[links[:, 1], links[:, 0]] = True
    return table[np.ix_(target_words, source_words)]
