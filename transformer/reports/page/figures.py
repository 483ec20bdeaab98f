"""Figures of a report as inline SVG; the colors are classes of the style sheet."""

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

Number = float | int
Point = tuple[Number, Number]

_LEFT = 50
_RIGHT = 14
_TOP = 10
_BOTTOM = 26
_CHARACTER = 6.5
"""Width of a character of a label, in units of a chart, rounded up."""
_MOST_POINTS = 240
"""Points of a line: about as many as it has pixels."""


class Size(NamedTuple):
    """Size of a chart, in pixels of its labels."""

    width: int
    height: int


LARGE = Size(420, 220)
SMALL = Size(270, 130)


class Line(NamedTuple):
    """A line of a chart; the points are in the order of x; ``color`` is one of six."""

    name: str
    points: Sequence[Point]
    color: int = 0


def line_chart(
    label: str, lines: Sequence[Line], mark: Number | None = None, size: Size = LARGE
) -> Markup:
    """A chart with axes; ``mark`` is an x to point out. The label is for screen readers."""
    lines = [line._replace(points=_thinned(line.points)) for line in lines]
    xs, ys = zip(*(point for line in lines for point in line.points), strict=True)
    first, last = min(xs), max(xs)
    ticks = _ticks(min(ys), max(ys), size.height // 40)
    low, high = ticks[0], ticks[-1]
    base = size.height - _BOTTOM
    labels = [_shown(y, ticks) for y in ticks]
    begin, end = max(_LEFT, 10 + _CHARACTER * max(map(len, labels))), size.width - _RIGHT

    def at(x: Number, y: Number) -> tuple[float, float]:
        across = begin + (x - first) / (last - first or 1) * (end - begin)
        return round(across, 1), round(_TOP + (high - y) / (high - low) * (base - _TOP), 1)

    parts = [
        _rule(at(first, y)[1], begin, end, label) for y, label in zip(ticks, labels, strict=True)
    ]
    across = _ticks(first, last, size.width // 70, least=1.0)  # updates and lengths are whole
    parts += [
        _tick(at(x, low)[0], base + 17, _shown(x, across), size)
        for x in across
        if first <= x <= last
    ]
    if mark is not None:
        vertical = Markup('<line class="mark" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>')
        parts.append(vertical.format(at(mark, low)[0], _TOP, base))
    for line in lines:
        points = [at(*point) for point in line.points]
        path = " ".join("{},{}".format(*point) for point in points)
        parts.append(Markup('<polyline class="c{}" points="{}"/>').format(line.color, path))
        circle = Markup('<circle class="c{}" cx="{}" cy="{}" r="3.2"/>')
        for point, (x, _) in zip(points, line.points, strict=True):
            if x == mark or len(points) == 1:
                parts.append(circle.format(line.color, *point))
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}" data-box="{}" '
        'data-lines="{}">{}</svg>'
    ).format(
        *(*size, label, json.dumps([begin, end, first, last])),
        json.dumps(lines, ensure_ascii=False, separators=(",", ":")),
        Markup("").join(parts),
    )


def _rule(y: float, begin: Number, end: Number, label: str) -> Markup:
    return Markup(
        '<line class="grid" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>'
        '<text x="{3}" y="{2}" dy="4" text-anchor="end">{4}</text>'
    ).format(begin, end, y, begin - 6, label)


def _tick(x: Number, y: Number, label: str, size: Size) -> Markup:
    """A label below the axis, moved to the left where the chart would cut it."""
    half = _CHARACTER * len(label) / 2
    return Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
        round(min(x, size.width - half), 1), y, label
    )


def bar(value: Number | None, most: Number, color: int = 0) -> Markup:
    """A horizontal bar in a cell of a table; of no value or one below 0 it is empty."""
    width = max(0.0, min(100.0, 100 * (value or 0.0) / (most or 1.0)))
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="c{}" width="{:.1f}" height="8"/></svg>'
    ).format(color, width)


def distribution(counts: Sequence[int], longest: int, bins: int = 40) -> list[Point]:
    """Percent of the pairs of a length, from the number of pairs of each; the mean of a bin.

    Curves of one chart have the same bins, by the ``longest`` of their counts.
    """
    width = math.ceil(longest / bins)
    total = (sum(counts) or 1) * width
    starts = range(0, len(counts) + width, width)
    return [(a + (width - 1) / 2, 100 * sum(counts[a : a + width]) / total) for a in starts]


def _thinned(points: Sequence[Point]) -> list[Point]:
    size = math.ceil(len(points) / _MOST_POINTS)
    groups = (points[at : at + size] for at in range(0, len(points), size))
    return [
        (group[-1][0], float(f"{sum(y for _, y in group) / len(group):.5g}")) for group in groups
    ]


def _ticks(low: Number, high: Number, most: int, least: float = 0.0) -> list[float]:
    """Round numbers around a range, at equal steps that are not below the least."""
    span = high - low or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * n for n in (1, 2, 5, 10, 20) if span / (power * n) <= most)
    step = max(step, least)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]


def _shown(value: float, ticks: Sequence[float]) -> str:
    """A number with as many decimals as the steps of its axis need."""
    step = ticks[1] - ticks[0]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:,.{decimals}f}" if decimals < 5 else f"{value:.2g}"
