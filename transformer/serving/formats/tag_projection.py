"""Finds the parts of a text with marks in its translation, by word links.

Each word of the translation is cut into leading punctuation, core and trailing punctuation; each
part takes the marks of its partner in the source. A kept span goes beside the translation of its
neighbor. How marks nest is left to ``nesting``. Source: html.cpp of
https://github.com/browsermt/bergamot-translator.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence

from transformer.serving.batch_translation import SentenceTranslation, TextTranslation
from transformer.serving.formats.spans import Cell, PlainText

NEAR_BEST = 0.75
"""Threshold of links for marks, chosen on validation; docs/serving.md has results."""

# The words of links: any other blank is a part of a word.
_WORDS_AND_BLANKS = re.compile(r"[^ \n]+|[ \n]+")
_BLANKS = (" ", "\n")

_Word = list[tuple[str, int]]
"""Leading punctuation, core and trailing punctuation of a word, each with its start."""


def _cut(word: str, start: int = 0) -> _Word:
    """Cut a word; one of punctuation alone is trailing punctuation."""
    letters = [index for index, letter in enumerate(word) if _is_letter(letter)]
    first, last = (letters[0], letters[-1] + 1) if letters else (0, 0)
    parts = (word[:first], 0), (word[first:last], first), (word[last:], last)
    return [(part, start + offset) for part, offset in parts]


def _is_letter(character: str) -> bool:
    """Whether it is a letter, a digit or a part of one: no punctuation, symbol or blank."""
    return unicodedata.category(character)[0] in "LMN"


def project(plain: PlainText, found: TextTranslation) -> list[Cell]:
    """The cells of a translation, in its order; copied sentences and blanks are unchanged."""
    cells: list[Cell] = []
    waiting = deque(plain.kept)
    offset = 0

    def kept_until(end: int) -> Iterator[Cell]:
        while waiting and waiting[0].start <= end:
            yield waiting.popleft()

    for part, sentence in found.parts:
        start = offset + len(part.blanks)
        end = start + len(part.sentence)
        cells += _with_kept(plain.copy(offset, start), kept_until(start))
        if is_copy(sentence):
            cells += _with_kept(plain.copy(start, end), kept_until(end))
        else:
            translated = _sentence(plain, start, sentence)
            cells += _beside(translated, list(kept_until(end - 1)), plain.text)
        offset = end
    return [*cells, *waiting]


def is_copy(found: SentenceTranslation) -> bool:
    """Whether a sentence is its own translation, apart from blanks."""
    return found.source == found.text or found.source.split() == found.text.split()


def _with_kept(cells: Iterable[Cell], kept: Iterable[Cell]) -> Iterator[Cell]:
    """Copied cells, and kept ones exactly where they were."""
    waiting = deque(kept)
    for cell in cells:
        while waiting and waiting[0].start < cell.end:
            one = waiting.popleft()
            if (cut := one.start - cell.start) > 0:
                yield cell._replace(text=cell.text[:cut], end=one.start)
                cell = cell._replace(text=cell.text[cut:], start=one.start)
            yield one
        yield cell
    yield from waiting


def _sentence(plain: PlainText, start: int, found: SentenceTranslation) -> list[Cell]:
    source = [
        _cut(match[0], start + match.start())
        for match in _WORDS_AND_BLANKS.finditer(found.source)
        if not match[0].startswith(_BLANKS)
    ]
    chunks = _WORDS_AND_BLANKS.findall(found.text)
    linked = _linked(found, len(source), sum(not c.startswith(_BLANKS) for c in chunks))
    cells: list[Cell] = []
    number = -1
    for chunk in chunks:
        if chunk.startswith(_BLANKS):
            cells.append(Cell(chunk))
            continue
        number += 1
        partners = [source[index] for index in linked[number]]
        last = source[-1:] if number == len(linked) - 1 else []
        for kind, (text, _) in enumerate(_cut(chunk)):
            if text:
                cells += _part(plain, text, kind, partners, last if kind == 2 else [])
    return cells


def _linked(found: SentenceTranslation, sources: int, targets: int) -> list[list[int]]:
    """The source words of each target word; without links, those at the same relative position."""
    if found.links is None:
        return [[index * sources // targets] if sources else [] for index in range(targets)]
    linked: list[list[int]] = [[] for _ in range(targets)]
    for source, target in found.links:
        if source < sources and target < targets:
            linked[target].append(source)
    return linked


def _part(
    plain: PlainText, text: str, kind: int, partners: Sequence[_Word], last: Sequence[_Word]
) -> Iterator[Cell]:
    """The cells of a core or punctuation, by the partner with the most marks."""
    of_kind = [one[kind] for one in partners] or [one[kind] for one in last]
    if kind == 2 and not any(part for part, _ in of_kind):
        of_kind = [one[kind] for one in last]
    candidates = [
        (part == text, len(plain.marks(start, start + len(part))), -start, len(part))
        for part, start in of_kind
        if part
    ]
    if not candidates:
        yield Cell(text)
        return
    same, _, start, length = max(candidates)
    start, end = -start, length - start
    if same:
        yield from plain.copy(start, end)
    else:
        yield Cell(text, plain.marks(start, end), start, end)


def _beside(cells: list[Cell], kept: Sequence[Cell], source: str) -> list[Cell]:
    """Cells of a sentence, and its kept ones beside the partners of their neighbors."""
    if not kept:
        return cells
    position = Positions(cells)
    inserted: defaultdict[int, list[Cell]] = defaultdict(list)
    for one in kept:
        inserted[position.index(one.start)].append(one)
    result: list[Cell] = []
    for index in range(len(cells) + 1):
        following = cells[index : index + 1]
        for one in inserted.get(index, ()):
            # A text that was a word of its own stays one.
            if one.text and result and _apart(result[-1], True, one.start, source):
                result.append(Cell(" "))
            result.append(one)
            if one.text and following and _apart(following[0], False, one.start, source):
                following = [Cell(" "), *following]
        result += following
    return result


def _apart(cell: Cell, before: bool, offset: int, source: str) -> bool:
    """Whether a blank belongs between a kept text, at ``offset`` in the source, and a cell."""
    touching = offset == (cell.end if before else cell.start)
    if cell.kept:
        return not touching
    character = cell.text[-1 if before else 0]
    opening_or_closing = ("Ps", "Pi") if before else ("Po", "Pe", "Pf")
    if character.isspace() or unicodedata.category(character) in opening_or_closing:
        return False
    return not touching or _is_letter(character) != _is_letter(source[offset - before])


class Positions:
    """Positions among the cells of a translation, by offsets in the source."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._starts = sorted((c.start, i) for i, c in enumerate(cells) if c.start >= 0)
        self._cells = cells

    def index(self, offset: int) -> int:
        """The index after the partner of the word before the offset.

        If only the next word touches the offset, the index of the partner of that word.
        """
        after = bisect_left(self._starts, (offset, -1))
        if after:
            before = self._starts[after - 1][1]
            touches = self._cells[before].end >= offset
            if touches or after == len(self._starts) or self._starts[after][0] > offset:
                return before + 1
        return self._starts[after][1] if after < len(self._starts) else len(self._cells)
