"""Puts marks around the cells of a translation so that they nest as in the source."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from transformer.serving.formats.spans import Cell, Mark, MarkedText, Span
from transformer.serving.formats.tag_projection import Positions


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
    root, offset = _Node(), 0
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
        inside = [i for i, c in enumerate(cells) if c.marks != node.path or not c.text.isspace()]
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
    inside = {i: (first, last) for first, last in runs.values() for i in range(first, last + 1)}
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
    free = [cell.kept or cell.marks is None or cell.text.isspace() for cell in cells]
    foreign = [0, *accumulate(not skip for skip in free)]
    taken = (not skip and o is not None for skip, o in zip(free, owners, strict=True))
    owned = [0, *accumulate(taken)]
    members: defaultdict[_Node, list[int]] = defaultdict(list)
    for index, (cell, owner) in enumerate(zip(cells, owners, strict=True)):
        if owner is not None and not cell.kept:
            members[owner].append(index)
    found = {}
    for child, all_indices in members.items():
        # Blanks at its ends may stay outside.
        indices = [i for i in all_indices if not cells[i].text.isspace()] or all_indices
        between = owned if child.children else foreign
        runs = [[indices[0]]]
        for before, index in pairwise(indices):
            if between[index] > between[before + 1]:
                runs.append([])
            runs[-1].append(index)
        best = max(runs, key=lambda run: sum(not free[index] for index in run))
        found[child] = best[0], best[-1]
    return found
