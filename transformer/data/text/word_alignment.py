"""Word alignment of sentence pairs: Pharaoh links in files, and what they mean among pieces.

A link ``0-2`` joins source word 0 to target word 2. Words are what spaces part, as the tokenizer
sees them. Does not know which corpus the links belong to, nor what learns from them.
Source of the format: Koehn 2004, "Pharaoh".
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from transformer.common.errors import InputError
from transformer.data.text.parallel import Pair, read_lines
from transformer.data.tokenization.normalization import normalize
from transformer.data.tokenization.subword_regularization import WORD_START
from transformer.data.tokenization.tags import is_tag

Link = tuple[int, int]
"""(source word, target word), counted from 0."""
Links = frozenset[Link]

# No sentence has more words than nine digits can say.
_LINK = re.compile(r"(\d{1,9})([-p])(\d{1,9})", re.ASCII)
NO_WORD = -1
"""In place of a word's number: what a tag is part of."""

# Bytes a model can spell that part words: the translator makes a space of a line end.
_SPACES = ("<0x20>", "<0x0A>")


class WordLinks(NamedTuple):
    """The links of one sentence pair (Och and Ney 2003, section 5.1)."""

    sure: Links
    """``3-4``: a link that is right."""
    possible: Links
    """``3p4``: one that may be right or wrong; the sure ones are possible too."""


def parse_links(line: str, where: str) -> WordLinks:
    """Read one line of links, such as ``0-0 1-2 2p2``; a blank line has none.

    Raises:
        InputError: something is no link; the message begins with ``where``.
    """
    sure, possible = set(), set()
    for text in line.split():
        match = _LINK.fullmatch(text)
        if match is None:
            raise InputError(
                f"{where}: {text!r} is not a link; write SOURCE-TARGET, two word numbers from 0, "
                "as in 0-0 1-2"
            )
        link = (int(match[1]), int(match[3]))
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return WordLinks(frozenset(sure), frozenset(possible))


def format_links(links: Iterable[Link]) -> str:
    """Write links as Pharaoh does, in the order of the source."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_links(
    path: Path, pairs: Iterable[Pair], max_line: int | None = None
) -> Iterator[WordLinks]:
    """Yield the links of each pair of a text, line by line; see `read_lines` for ``max_line``.

    Raises:
        InputError: the file cannot be read, a link is malformed or leads out of its sentence, or
            there are not as many lines as pairs.
    """
    lines, texts = read_lines(path, max_line), iter(pairs)
    for number, (line, pair) in enumerate(zip_longest(lines, texts), start=1):
        if line is None or pair is None:
            links = number - (line is None) + sum(1 for _ in lines)
            count = number - (pair is None) + sum(1 for _ in texts)
            raise InputError(
                f"{path} has {links:,} lines of links for {count:,} sentence pairs; "
                "give one line a pair, blank where nothing is linked"
            )
        where = f"{path}:{number}"
        links_of_pair = parse_links(line, where)
        _check_range(links_of_pair.possible, pair, where)
        yield links_of_pair


def word_count(text: str) -> int:
    """Return the number of words of a raw text."""
    words = normalize(text)
    return words.count(" ") + 1 if words else 0


def subword_words(subwords: Sequence[str]) -> list[int]:
    """Return the word, from 0, that each piece of a text is part of.

    Args:
        pieces: as they are spelt in the vocabulary; a search may put them together in ways that
            no segmentation does, and a piece that spells nothing then counts to a neighbour. A
            tag is part of NO_WORD, and no word goes on after it.
    """
    words: list[int] = []
    word, begun = -1, False
    for subword in subwords:
        if is_tag(subword):
            words.append(NO_WORD)
            begun = False
            continue
        begun = begun and not subword.startswith(WORD_START) and subword not in _SPACES
        if not begun and subword != WORD_START and subword not in _SPACES:
            word, begun = word + 1, True
        words.append(word if begun else word + 1)
    return [min(index, word) for index in words]


def linked_subwords(
    links: Int[np.ndarray, "link 2"], source_words: Sequence[int], target_words: Sequence[int]
) -> Bool[np.ndarray, "target source"]:
    """Link every piece of a source word to every piece of a target word linked to it.

    Args:
        links: (source word, target word), each of a word that has pieces.
        source_words: the word of each source piece (`subword_words`).
        target_words: the word of each target piece.
    """
    # One more of each, the last, is NO_WORD: nothing is linked to it.
    table = np.zeros((max(target_words, default=-1) + 2, max(source_words, default=-1) + 2), bool)
    table[links[:, 1], links[:, 0]] = True
    return table[np.ix_(target_words, source_words)]


def _check_range(links: Links, pair: Pair, where: str) -> None:
    counts = tuple(map(word_count, pair))
    for link in sorted(links):
        for index, count, side in zip(link, counts, ("source", "target"), strict=True):
            if index >= count:
                raise InputError(
                    f"{where}: link {link[0]}-{link[1]} leads out of the {side} sentence, which "
                    f"has {count} words; words are parted by spaces and counted from 0"
                )
