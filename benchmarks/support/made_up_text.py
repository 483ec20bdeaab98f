"""Parallel text of any size, made up from a seed: it knows no language and keeps nothing in memory.

A word of the source has one translation; a target sentence is the translated source with the last
word in front. How often words occur follows Zipf's law, as in real text.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

_WORDS = 30_000
_LETTERS = np.array(list("aaabcdeeefghiiklmnooprstuuvw"))
_BLOCK = 20_000
_SHORTEST = 4
_LONGEST = 20


def write_text(file: Path, pairs: int, seed: int) -> None:
    """Write so many lines SOURCE<TAB>TARGET; the same words for every seed."""
    with file.open("w", encoding="utf-8") as out:
        for lines in _lines(pairs, seed):
            out.write(lines)


def _lines(pairs: int, seed: int) -> Iterator[str]:
    source = _vocabulary(1)
    target = _vocabulary(2)
    random = np.random.default_rng(seed)
    share = 1 / np.arange(10, _WORDS + 10)
    upto = np.cumsum(share / share.sum())
    for start in range(0, pairs, _BLOCK):
        lengths = random.integers(_SHORTEST, _LONGEST + 1, min(_BLOCK, pairs - start))
        drawn = np.searchsorted(upto, random.random(int(lengths.sum()))).tolist()
        lines = []
        index = 0
        for length in lengths.tolist():
            words = drawn[index : index + length]
            index += length
            first = " ".join([source[word] for word in words])
            second = " ".join([target[word] for word in (words[-1], *words[:-1])])
            lines.append(f"{first}\t{second}\n")
        yield "".join(lines)


@cache
def _vocabulary(seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 11, _WORDS)
    return ["".join(random.choice(_LETTERS, length)) for length in lengths]
