"""Carries the marks of a text, such as tags of HTML, over to its translation by word links.

1. ``PlainText`` is the text without its marks, which is translated.
2. ``project`` cuts each word of the translation into leading punctuation, core and trailing
   punctuation. Each of these cells takes the marks of its partner in the source; a placeholder has
   those that it has there. A kept span goes beside the translation of its neighbor.
3. ``nest`` puts marks around the cells so that they nest as in the source.

Source: html.cpp of https://github.com/browsermt/bergamot-translator.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise, takewhile
from typing import Any, NamedTuple

from transformer.data.text.placeholders import PLACEHOLDER
from transformer.serving.batch_translation import SentenceTranslation, TextTranslation


@dataclass(frozen=True, eq=False)
class Mark:
    """Something around one stretch of text, such as a tag of HTML; two marks are never equal."""

    payload: Any


@dataclass(frozen=True)
class Span:
    """A stretch of text with the marks around it, the outermost first.

    An object without text, such as an image, is a span with the text ""; its last mark is the
    object.
    With ``keep``, the text must not be translated.
    """

    text: str
    marks: tuple[Mark, ...] = ()
    keep: bool = False


MarkedText = tuple[Span, ...]
"""The spans of one paragraph, cell or subtitle. The spans of a mark are neighbors; marks nest."""


def same_marks(before: Sequence[Mark], after: Sequence[Mark]) -> int:
    """The number of outermost marks that two spans share."""
    pairs = zip(before, after, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))


def write_tagged(spans: MarkedText, escape: Callable[[str], str] = str) -> str:
    """The text with marks whose payloads are a start and an end tag; kept text is not escaped."""
    written: list[str] = []
    around: tuple[Mark, ...] = ()
    for span in (*spans, Span("")):
        same = same_marks(around, span.marks)
        written += [mark.payload[1] for mark in reversed(around[same:])]
        written += [mark.payload[0] for mark in span.marks[same:]]
        written.append(span.text if span.keep else escape(span.text))
        around = span.marks
    return "".join(written)


class Cell(NamedTuple):
    """A part of a source, or of a translation with its partner in characters of the source.

    It is ``kept`` if it is a kept text or an object without text. Without a partner it has no
    marks.
    """

    text: str
    marks: tuple[Mark, ...] | None = None
    start: int = -1
    end: int = -1
    kept: bool = False


class PlainText:
    """The ``text`` to translate of a text with marks, its ``cells``, and the ``kept`` ones."""

    def __init__(self, spans: MarkedText) -> None:
        self.cells: list[Cell] = []
        self.kept: list[Cell] = []
        size = 0
        for span in spans:
            if span.keep or not span.text:
                self.kept.append(Cell(span.text, span.marks, size, size, kept=True))
            else:
                end = size + len(span.text)
                self.cells.append(Cell(span.text, span.marks, size, end))
                size = end
        self.text = "".join(cell.text for cell in self.cells)

    @property
    def needs_links(self) -> bool:
        """Whether marks or kept spans stand between words."""
        first = len(self.text) - len(self.text.lstrip())
        last = len(self.text.rstrip())
        stacks = {cell.marks for cell in self.cells if not cell.text.isspace()}
        return len(stacks) > 1 or any(first < cell.start < last for cell in self.kept)

    def copy(self, start: int, end: int) -> Iterator[Cell]:
        """The cells of a stretch that stays as it is."""
        first = bisect_right(self.cells, start, key=lambda cell: cell.start) - 1
        for index in range(max(0, first), len(self.cells)):
            cell = self.cells[index]
            if cell.start >= end:
                break
            low = max(start, cell.start)
            high = min(end, cell.end)
            if low < high:
                yield Cell(cell.text[low - cell.start : high - cell.start], cell.marks, low, high)

    def marks(self, start: int, end: int) -> tuple[Mark, ...]:
        """The marks of the cell of the stretch that has the most."""
        return max((cell.marks or () for cell in self.copy(start, end)), key=len, default=())


NEAR_BEST = 0.75
"""Threshold of links for marks, chosen on validation; benchmarks/serving/serving.md has results."""

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


def project(plain: PlainText, translation: TextTranslation) -> list[Cell]:
    """The cells of a translation, in its order; copied sentences and blanks are unchanged."""
    cells: list[Cell] = []
    waiting = deque(plain.kept)
    offset = 0

    def kept_until(end: int) -> Iterator[Cell]:
        while waiting and waiting[0].start <= end:
            yield waiting.popleft()

    for blanks, (part, sentence) in zip(translation.separators, translation.parts, strict=True):
        start = offset + len(part.blanks)
        end = start + len(part.sentence)
        if blanks != part.blanks:
            cells.append(Cell(blanks))
        cells += _with_kept(plain.copy(offset, start), kept_until(start))
        if is_copy(sentence):
            cells += _with_kept(plain.copy(start, end), kept_until(end))
        else:
            translated = _sentence(plain, start, sentence)
            cells += _beside(translated, list(kept_until(end - 1)), plain.text)
        offset = end
    return [*cells, *waiting]


def is_copy(sentence: SentenceTranslation) -> bool:
    """Whether a sentence is its own translation, apart from blanks."""
    return sentence.source == sentence.text or sentence.source.split() == sentence.text.split()


def _with_kept(cells: Iterable[Cell], kept: Iterable[Cell]) -> Iterator[Cell]:
    """Copied cells, and kept ones exactly where they were."""
    waiting = deque(kept)
    for cell in cells:
        while waiting and waiting[0].start < cell.end:
            kept_cell = waiting.popleft()
            cut = kept_cell.start - cell.start
            if cut > 0:
                yield cell._replace(text=cell.text[:cut], end=kept_cell.start)
                cell = cell._replace(text=cell.text[cut:], start=kept_cell.start)
            yield kept_cell
        yield cell
    yield from waiting


def _sentence(plain: PlainText, start: int, sentence: SentenceTranslation) -> list[Cell]:
    source = [
        _cut(match[0], start + match.start())
        for match in _WORDS_AND_BLANKS.finditer(sentence.source)
        if not match[0].startswith(_BLANKS)
    ]
    chunks = _WORDS_AND_BLANKS.findall(sentence.text)
    words = [chunk for chunk in chunks if not chunk.startswith(_BLANKS)]
    linked = _linked(sentence, len(source), len(words))
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
    return list(_with_placeholders(cells, plain, start, sentence))


def _with_placeholders(
    cells: Sequence[Cell], plain: PlainText, start: int, sentence: SentenceTranslation
) -> Iterator[Cell]:
    """Each placeholder as it stands in the source: punctuation in it is no end of a word."""
    offsets: defaultdict[str, deque[int]] = defaultdict(deque)
    for match in PLACEHOLDER.finditer(sentence.source):
        offsets[match[0]].append(start + match.start())
    matches = [
        (match.start(), match.end(), offsets[match[0]].popleft())
        for match in PLACEHOLDER.finditer(sentence.text)
        if offsets[match[0]]
    ]
    end = 0
    for cell in cells:
        begin, end = end, end + len(cell.text)
        written = begin
        for first, last, offset in matches:
            if begin < last and first < end:
                if written < first:
                    yield cell._replace(text=cell.text[written - begin : first - begin])
                if begin <= first:
                    yield from plain.copy(offset, offset + last - first)
                written = last
        if written < end:
            yield cell._replace(text=cell.text[written - begin :])


def _linked(sentence: SentenceTranslation, sources: int, targets: int) -> list[list[int]]:
    """The source words of each target word; without links, those at the same relative position."""
    if sentence.links is None:
        return [[index * sources // targets] if sources else [] for index in range(targets)]
    linked: list[list[int]] = [[] for _ in range(targets)]
    for source, target in sentence.links:
        if source < sources and target < targets:
            linked[target].append(source)
    return linked


def _part(
    plain: PlainText, text: str, kind: int, partners: Sequence[_Word], last: Sequence[_Word]
) -> Iterator[Cell]:
    """The cells of a core or punctuation, by the partner with the most marks."""
    partner_parts = [word[kind] for word in partners]
    if not partner_parts or (kind == 2 and not any(part for part, _ in partner_parts)):
        partner_parts = [word[kind] for word in last]
    candidates = [
        (part == text, len(plain.marks(start, start + len(part))), -start, len(part))
        for part, start in partner_parts
        if part
    ]
    if not candidates:
        yield Cell(text)
        return
    same, _, negative_start, length = max(candidates)
    start = -negative_start
    end = start + length
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
    for kept_cell in kept:
        inserted[position.index(kept_cell.start)].append(kept_cell)
    result: list[Cell] = []
    for index in range(len(cells) + 1):
        following = cells[index : index + 1]
        for kept_cell in inserted.get(index, ()):
            text = kept_cell.text
            start = kept_cell.start
            # A text that was a word of its own stays one.
            if text and result and _apart(result[-1], True, start, source):
                result.append(Cell(" "))
            result.append(kept_cell)
            if text and following and _apart(following[0], False, start, source):
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
        self._starts = sorted(
            (cell.start, index) for index, cell in enumerate(cells) if cell.start >= 0
        )
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


@dataclass(eq=False)
class _Node:
    """A mark, the last of its ``path``; ``direct`` if text of it is not in its children."""

    path: tuple[Mark, ...] = ()
    start: int = 0
    direct: bool = False
    children: "dict[Mark, _Node]" = field(default_factory=dict)


_Group = tuple[list[Cell], _Node]


def nest(spans: MarkedText, cells: Sequence[Cell]) -> MarkedText:
    """The spans of a translation from its cells; each mark is there once, around neighbors.

    A mark goes around the largest group of its cells. A mark that holds marks goes around all its
    cells, unless another mark stands between. A mark without cells goes beside its neighbors,
    around the next word if it had a word.
    """
    root = _tree(spans)
    joined: list[Span] = []
    for span in _nested(cells, root):
        before = joined[-1] if joined else None
        if before and before.marks == span.marks and not (before.keep or span.keep):
            joined[-1] = Span(before.text + span.text, span.marks)
        else:
            joined.append(span)
    return tuple(joined)


def _tree(spans: MarkedText) -> _Node:
    root = _Node()
    offset = 0
    for span in spans:
        node = root
        for mark in span.marks:
            if mark not in node.children:
                node.children[mark] = _Node((*node.path, mark), offset)
            node = node.children[mark]
        node.direct = node.direct or span.keep or not span.text.isspace()
        offset += 0 if span.keep else len(span.text)
    return root


def _nested(cells: Sequence[Cell], node: _Node) -> Iterator[Span]:
    if not node.children:
        yield from (Span(cell.text, node.path, cell.kept) for cell in cells)
        if not cells and node.path:
            yield Span("", node.path)
        return
    if len(node.children) == 1 and not node.direct:
        [child] = node.children.values()
        # Blanks that were around it stay there.
        inside = [
            index
            for index, cell in enumerate(cells)
            if cell.marks != node.path or not cell.text.isspace()
        ]
        first, last = (inside[0], inside[-1] + 1) if inside else (0, 0)
        yield from (Span(cell.text, node.path) for cell in cells[:first])
        yield from _nested(cells[first:last], child)
        yield from (Span(cell.text, node.path) for cell in cells[last:])
        return
    for content in _grouped(cells, node):
        if isinstance(content, Cell):
            yield Span(content.text, node.path, content.kept)
        else:
            yield from _nested(*content)


def _grouped(cells: Sequence[Cell], node: _Node) -> list[Cell | _Group]:
    """The cells directly in a mark, and those of each of its children, in their new order."""
    depth = len(node.path)
    owners = [
        node.children[cell.marks[depth]] if cell.marks and len(cell.marks) > depth else None
        for cell in cells
    ]
    position = Positions(cells)
    owning = set(owners)
    for child in node.children.values():
        if child.direct and child not in owning:
            _take_nearest(child, cells, owners, position.index(child.start))
    runs = _runs(cells, owners)
    inside = {
        index: (first, last) for first, last in runs.values() for index in range(first, last + 1)
    }
    groups: dict[_Node, list[Cell]] = {child: [] for child in node.children.values()}
    keys = {child: float(first) for child, (first, _) in runs.items()}
    items: list[tuple[float, int, Cell | _Group]] = []

    def key(index: int) -> float:
        """The order of what goes before a cell; nothing goes into a group that is not of it."""
        first, last = inside.get(index, (index, 0))
        return last + 0.5 if first < index else index - 0.5

    for index, (cell, owner) in enumerate(zip(cells, owners, strict=True)):
        if index in inside and not cell.kept:
            owner = owners[inside[index][0]]
        elif not cell.kept:
            owner = None
        if owner is None:
            items.append((key(index) if cell.kept else index, len(items), cell))
        else:
            groups[owner].append(cell)
            keys.setdefault(owner, key(index))
    for child, group in groups.items():
        before = keys.get(child, key(position.index(child.start)))
        items.append((before, len(items), (group, child)))
    return [content for *_, content in sorted(items, key=lambda item: item[:2])]


def _take_nearest(
    child: _Node, cells: Sequence[Cell], owners: list[_Node | None], first: int
) -> None:
    """Give a mark without partners the word after the partner of the word before it."""
    if first and cells[first - 1].end > child.start:
        return  # A word with two marks went to the other.
    for index in range(first, min(first + 2, len(cells))):
        cell = cells[index]
        if owners[index] is None and not cell.kept and any(map(str.isalnum, cell.text)):
            owners[index] = child
            return


def _runs(cells: Sequence[Cell], owners: Sequence[_Node | None]) -> dict[_Node, tuple[int, int]]:
    """The first and last cell of the largest group of each child."""
    free = [cell.kept or cell.marks is None or cell.text.isspace() for cell in cells]
    foreign = [0, *accumulate(not skip for skip in free)]
    owned = [
        0,
        *accumulate(
            not skip and owner is not None for skip, owner in zip(free, owners, strict=True)
        ),
    ]
    members: defaultdict[_Node, list[int]] = defaultdict(list)
    for index, (cell, owner) in enumerate(zip(cells, owners, strict=True)):
        if owner is not None and not cell.kept:
            members[owner].append(index)
    largest = {}
    for child, indices in members.items():
        # Blanks at its ends may stay outside.
        with_text = [index for index in indices if not cells[index].text.isspace()]
        if with_text:
            indices = with_text
        between = owned if child.children else foreign
        runs = [[indices[0]]]
        for before, index in pairwise(indices):
            if between[index] > between[before + 1]:
                runs.append([])
            runs[-1].append(index)
        best = max(runs, key=lambda run: sum(not free[index] for index in run))
        largest[child] = best[0], best[-1]
    return largest
